// What hopper_host.h needs of the standard library; it is compiled once for all programs of a test run.
#ifndef HOPPER_HOST_LIBRARY
#define HOPPER_HOST_LIBRARY
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <vector>
#endif
