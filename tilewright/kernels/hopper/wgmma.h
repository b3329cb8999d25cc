// wgmma: the product of a warpgroup on Hopper's tensor cores, D[64][WG_N] += A[64][32 bytes] B[WG_N][32 bytes]'.
//
//   WG_N, WG_EIGHTHS   columns: a multiple of 8 up to 256, and how often 8 goes into it
//   DTYPE              2 f16 and 3 bf16: 16 products deep, D in f32;  4 i8: 32 deep, D in i32
//   PRODUCTS           (products.h) TF32 and THREE: 8 deep;  E4M3: 32 deep;  HALVES: f16, 16 deep: D in f32
//
// A and B lie in shared memory as their descriptors say, the sum along rows (operand.h). A thread has WG_N / 2 words of
// D: word 4j + 2h + e is of row 16 * warp + lane / 4 + 8h and column 8j + lane % 4 * 2 + e.
//
// The tables spell out the operands of the instruction: inline assembly has no loops.

#define WG_WORDS (WG_N / 2)
#if PRODUCTS == TF32 || PRODUCTS == THREE
#define WG_KIND "k8.f32.tf32.tf32"
#elif PRODUCTS == E4M3
#define WG_KIND "k32.f32.e4m3.e4m3"
#elif DTYPE == 4
#define WG_KIND "k32.s32.s8.s8"
#elif DTYPE == 3
#define WG_KIND "k16.f32.bf16.bf16"
#else
#define WG_KIND "k16.f32.f16.f16"
#endif
#if PRODUCTS != PLAIN && PRODUCTS != HALVES
#define WG_SCALES "p, 1, 1"  // nothing to transpose: both lie along the sum
#define WG_FORM "+f"
#elif DTYPE == 4
#define WG_SCALES "p"
#define WG_FORM "+r"
#else
#if SPAN  // B lies along its columns
#define WG_SCALES "p, 1, 1, 0, 1"
#else
#define WG_SCALES "p, 1, 1, 0, 0"
#endif
#define WG_FORM "+f"
#endif

#define WG_FOUR(i) WG_FORM(d[4 * i]), WG_FORM(d[4 * i + 1]), WG_FORM(d[4 * i + 2]), WG_FORM(d[4 * i + 3])
#define WG_REGS_1 "%0, %1, %2, %3"
#define WG_OUT_1 WG_FOUR(0)
#define WG_IN_1 "%4, %5"
#define WG_REGS_2 WG_REGS_1 ", %4, %5, %6, %7"
#define WG_OUT_2 WG_OUT_1, WG_FOUR(1)
#define WG_IN_2 "%8, %9"
#define WG_REGS_3 WG_REGS_2 ", %8, %9, %10, %11"
#define WG_OUT_3 WG_OUT_2, WG_FOUR(2)
#define WG_IN_3 "%12, %13"
#define WG_REGS_4 WG_REGS_3 ", %12, %13, %14, %15"
#define WG_OUT_4 WG_OUT_3, WG_FOUR(3)
#define WG_IN_4 "%16, %17"
#define WG_REGS_5 WG_REGS_4 ", %16, %17, %18, %19"
#define WG_OUT_5 WG_OUT_4, WG_FOUR(4)
#define WG_IN_5 "%20, %21"
#define WG_REGS_6 WG_REGS_5 ", %20, %21, %22, %23"
#define WG_OUT_6 WG_OUT_5, WG_FOUR(5)
#define WG_IN_6 "%24, %25"
#define WG_REGS_7 WG_REGS_6 ", %24, %25, %26, %27"
#define WG_OUT_7 WG_OUT_6, WG_FOUR(6)
#define WG_IN_7 "%28, %29"
#define WG_REGS_8 WG_REGS_7 ", %28, %29, %30, %31"
#define WG_OUT_8 WG_OUT_7, WG_FOUR(7)
#define WG_IN_8 "%32, %33"
#define WG_REGS_9 WG_REGS_8 ", %32, %33, %34, %35"
#define WG_OUT_9 WG_OUT_8, WG_FOUR(8)
#define WG_IN_9 "%36, %37"
#define WG_REGS_10 WG_REGS_9 ", %36, %37, %38, %39"
#define WG_OUT_10 WG_OUT_9, WG_FOUR(9)
#define WG_IN_10 "%40, %41"
#define WG_REGS_11 WG_REGS_10 ", %40, %41, %42, %43"
#define WG_OUT_11 WG_OUT_10, WG_FOUR(10)
#define WG_IN_11 "%44, %45"
#define WG_REGS_12 WG_REGS_11 ", %44, %45, %46, %47"
#define WG_OUT_12 WG_OUT_11, WG_FOUR(11)
#define WG_IN_12 "%48, %49"
#define WG_REGS_13 WG_REGS_12 ", %48, %49, %50, %51"
#define WG_OUT_13 WG_OUT_12, WG_FOUR(12)
#define WG_IN_13 "%52, %53"
#define WG_REGS_14 WG_REGS_13 ", %52, %53, %54, %55"
#define WG_OUT_14 WG_OUT_13, WG_FOUR(13)
#define WG_IN_14 "%56, %57"
#define WG_REGS_15 WG_REGS_14 ", %56, %57, %58, %59"
#define WG_OUT_15 WG_OUT_14, WG_FOUR(14)
#define WG_IN_15 "%60, %61"
#define WG_REGS_16 WG_REGS_15 ", %60, %61, %62, %63"
#define WG_OUT_16 WG_OUT_15, WG_FOUR(15)
#define WG_IN_16 "%64, %65"
#define WG_REGS_17 WG_REGS_16 ", %64, %65, %66, %67"
#define WG_OUT_17 WG_OUT_16, WG_FOUR(16)
#define WG_IN_17 "%68, %69"
#define WG_REGS_18 WG_REGS_17 ", %68, %69, %70, %71"
#define WG_OUT_18 WG_OUT_17, WG_FOUR(17)
#define WG_IN_18 "%72, %73"
#define WG_REGS_19 WG_REGS_18 ", %72, %73, %74, %75"
#define WG_OUT_19 WG_OUT_18, WG_FOUR(18)
#define WG_IN_19 "%76, %77"
#define WG_REGS_20 WG_REGS_19 ", %76, %77, %78, %79"
#define WG_OUT_20 WG_OUT_19, WG_FOUR(19)
#define WG_IN_20 "%80, %81"
#define WG_REGS_21 WG_REGS_20 ", %80, %81, %82, %83"
#define WG_OUT_21 WG_OUT_20, WG_FOUR(20)
#define WG_IN_21 "%84, %85"
#define WG_REGS_22 WG_REGS_21 ", %84, %85, %86, %87"
#define WG_OUT_22 WG_OUT_21, WG_FOUR(21)
#define WG_IN_22 "%88, %89"
#define WG_REGS_23 WG_REGS_22 ", %88, %89, %90, %91"
#define WG_OUT_23 WG_OUT_22, WG_FOUR(22)
#define WG_IN_23 "%92, %93"
#define WG_REGS_24 WG_REGS_23 ", %92, %93, %94, %95"
#define WG_OUT_24 WG_OUT_23, WG_FOUR(23)
#define WG_IN_24 "%96, %97"
#define WG_REGS_25 WG_REGS_24 ", %96, %97, %98, %99"
#define WG_OUT_25 WG_OUT_24, WG_FOUR(24)
#define WG_IN_25 "%100, %101"
#define WG_REGS_26 WG_REGS_25 ", %100, %101, %102, %103"
#define WG_OUT_26 WG_OUT_25, WG_FOUR(25)
#define WG_IN_26 "%104, %105"
#define WG_REGS_27 WG_REGS_26 ", %104, %105, %106, %107"
#define WG_OUT_27 WG_OUT_26, WG_FOUR(26)
#define WG_IN_27 "%108, %109"
#define WG_REGS_28 WG_REGS_27 ", %108, %109, %110, %111"
#define WG_OUT_28 WG_OUT_27, WG_FOUR(27)
#define WG_IN_28 "%112, %113"
#define WG_REGS_29 WG_REGS_28 ", %112, %113, %114, %115"
#define WG_OUT_29 WG_OUT_28, WG_FOUR(28)
#define WG_IN_29 "%116, %117"
#define WG_REGS_30 WG_REGS_29 ", %116, %117, %118, %119"
#define WG_OUT_30 WG_OUT_29, WG_FOUR(29)
#define WG_IN_30 "%120, %121"
#define WG_REGS_31 WG_REGS_30 ", %120, %121, %122, %123"
#define WG_OUT_31 WG_OUT_30, WG_FOUR(30)
#define WG_IN_31 "%124, %125"
#define WG_REGS_32 WG_REGS_31 ", %124, %125, %126, %127"
#define WG_OUT_32 WG_OUT_31, WG_FOUR(31)
#define WG_IN_32 "%128, %129"

#define WG_TEXT2(n) #n
#define WG_TEXT(n) WG_TEXT2(n)

#define WG_MULTIPLY(p)                                                                                          \
    asm volatile("{\n.reg .pred p;\nsetp." p ".u32 p, 0, 0;\n"                                                  \
                 "wgmma.mma_async.sync.aligned.m64n" WG_TEXT(WG_N) WG_KIND " {" TW_JOIN(WG_REGS_, WG_EIGHTHS) "}, " \
                 TW_JOIN(WG_IN_, WG_EIGHTHS) ", " WG_SCALES ";\n}\n"                                            \
                 : TW_JOIN(WG_OUT_, WG_EIGHTHS) : "l"(a), "l"(b))
INLINE void wg_multiply_add(acc_t d[WG_WORDS], unsigned long long a, unsigned long long b, int adds) {
    if (adds) WG_MULTIPLY("eq");  // D is added to
    else WG_MULTIPLY("ne");       // D is overwritten
}

INLINE void wg_begin(void) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }   // registers are ready
INLINE void wg_commit(void) { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
#define WG_WAIT(pending) asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory")
INLINE void wg_done(acc_t d[WG_WORDS]) {  // nothing that follows reads these sums before
    UNROLL for (int i = 0; i < WG_WORDS; i++) asm volatile("" : WG_FORM(d[i]) :: "memory");
}
INLINE void wg_see_copies(void) { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Registers of a warpgroup's threads, which another hands on or gets.
#define FEWER_REGISTERS(count) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count))
#define MORE_REGISTERS(count) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count))
