// What a printed text includes, compiled once: no macro of the text stands in front of it.
#ifndef NAUTILUS_PRELUDE_H
#define NAUTILUS_PRELUDE_H
#include "device.h"
#include <cuda.h>
#include <cuda_runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#endif
