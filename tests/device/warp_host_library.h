// What warp_host.h needs of the standard library; it is compiled once for all programs of a test run.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <algorithm>
#include <vector>
