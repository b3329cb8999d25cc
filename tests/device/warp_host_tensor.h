// What tensor.h has of memory, for warp_host.h: each function stands in place of the one there.
static void copy16(unsigned to, const unsigned char *from, int keep) {
    if (keep) memcpy(shared_store + to, from, 16);
    else memset(shared_store + to, 0, 16);
}
#define copy16_cached copy16
static void copy_part(unsigned to, const unsigned char *from, int bytes) {
    memset(shared_store + to, 0, 16);
    memcpy(shared_store + to, from, bytes);
}
static unsigned read_number(unsigned from, int bytes) {
    unsigned v = 0;
    memcpy(&v, shared_store + from, bytes);
    return v;
}
static void write16(unsigned to, const unsigned v[4]) { memcpy(shared_store + to, v, 16); }
static void read_sums(acc_t v[4], unsigned from) { memcpy(v, shared_store + from, 16); }
template <class type> static void store4(type *to, const type *from) { memcpy(to, from, 4 * sizeof(type)); }
