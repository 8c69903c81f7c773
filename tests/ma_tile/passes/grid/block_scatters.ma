; Blocks combine what they scatter in shared memory, and the results with memory.

; CASE: a block takes several tiles of its row
; RUN: block-scatters {"multiprocessors": 1}
; COMPLETE: allocate-shared, synchronize
; CHECK: kernel C grid 6 warps 2
; CHECK-NEXT: let y = block // 2
; CHECK-NEXT: let chunk = block % 2
; CHECK: smem C_block : i32[key: 8, copy: 4] stages 1
; CHECK: for x in chunk * 2..chunk * 2 + 2 carry() {
; CHECK: st.global C[y, %k], %v where %k >= 0 and %k < 8 vec 1 atomic sum in C_block
module scatter target sm_80 {
  input K: i32[3, 256]
  input V: i32[3, 256]
  output C: i32[3, 8] = 0
  kernel fill grid 1 warps 1 min_blocks 1 {
    layout #k = reg(r:3x1) lane(k:8x1, *:4) warp()
    %z = const 0 : i32[r: 3, k: 8] #k
    st.global C[r, k], %z vec 1
  }
  kernel C grid 12 warps 2 min_blocks 1 {
    let y = block // 4
    let x = block % 4
    layout #t = reg() lane(t:32x1) warp(t:2x32)
    %k = ld.global K[y, x * 64 + t] vec 1 : i32[t: 64] #t
    %v = ld.global V[y, x * 64 + t] vec 1 : i32[t: 64] #t
    st.global C[y, %k], %v where %k >= 0 and %k < 8 vec 1 atomic sum
  }
}

; CASE: the last block has fewer tiles, and two dimensions of keys are one axis
; RUN: block-scatters {"multiprocessors": 1}
; COMPLETE: allocate-shared, synchronize
; CHECK: kernel C grid 7 warps 1
; CHECK: let chunk = block
; CHECK: smem C_block : f32[key: 12] stages 1
; CHECK: for x in chunk * 2..min(chunk * 2 + 2, 13) carry() {
module scatter target sm_80 {
  input K: i32[416]
  input L: i32[416]
  input V: f32[416]
  output C: f32[3, 4] = -inf
  kernel fill grid 1 warps 1 min_blocks 1 {
    layout #k = reg(r:3x1) lane(k:4x1, *:8) warp()
    %z = const -inf : f32[r: 3, k: 4] #k
    st.global C[r, k], %z vec 1
  }
  kernel C grid 13 warps 1 min_blocks 1 {
    let x = block
    layout #t = reg() lane(t:32x1) warp()
    %k = ld.global K[x * 32 + t] vec 1 : i32[t: 32] #t
    %l = ld.global L[x * 32 + t] vec 1 : i32[t: 32] #t
    %v = ld.global V[x * 32 + t] vec 1 : f32[t: 32] #t
    st.global C[%k, %l], %v where %k >= 0 and %k < 3 and %l >= 0 and %l < 4 vec 1 atomic max
  }
}

; CASE: a tile has enough terms for a block of its own
; RUN: block-scatters {"multiprocessors": 12}
; COMPLETE: allocate-shared, synchronize
; CHECK: kernel C grid 12 warps 2
; CHECK: smem C_block : i32[key: 8, copy: 2] stages 1
; CHECK: st.global C[%k], %v where %k >= 0 and %k < 8 vec 1 atomic sum in C_block
module scatter target sm_80 {
  input K: i32[768]
  input V: i32[768]
  output C: i32[8] = 0
  kernel fill grid 1 warps 1 min_blocks 1 {
    layout #k = reg() lane(k:8x1, *:4) warp()
    %z = const 0 : i32[k: 8] #k
    st.global C[k], %z vec 1
  }
  kernel C grid 12 warps 2 min_blocks 1 {
    let x = block
    layout #t = reg() lane(t:32x1) warp(t:2x32)
    %k = ld.global K[x * 64 + t] vec 1 : i32[t: 64] #t
    %v = ld.global V[x * 64 + t] vec 1 : i32[t: 64] #t
    st.global C[%k], %v where %k >= 0 and %k < 8 vec 1 atomic sum
  }
}

; CASE: blocks have fewer terms where too few multiprocessors had blocks otherwise
; RUN: block-scatters {"multiprocessors": 4}
; COMPLETE: allocate-shared, synchronize
; CHECK: kernel C grid 2 warps 1
; CHECK: for x in chunk * 4..chunk * 4 + 4 carry() {
module scatter target sm_80 {
  input K: i32[256]
  output C: i32[64] = 0
  kernel fill grid 1 warps 2 min_blocks 1 {
    layout #k = reg() lane(k:32x1) warp(k:2x32)
    %z = const 0 : i32[k: 64] #k
    st.global C[k], %z vec 1
  }
  kernel C grid 8 warps 1 min_blocks 1 {
    let x = block
    layout #t = reg() lane(t:32x1) warp()
    %k = ld.global K[x * 32 + t] vec 1 : i32[t: 32] #t
    st.global C[%k], %k where %k >= 0 and %k < 64 vec 1 atomic sum
  }
}

; CASE: the place of an element decides which half of a byte is its key
; RUN: block-scatters {"multiprocessors": 1}
; COMPLETE: allocate-shared, synchronize
; CHECK: kernel C grid 2 warps 1
; CHECK: for x in chunk * 2..chunk * 2 + 2 carry() {
; CHECK: st.global C[%k // (n % 2 * 15 + 1) % 16], %k where %k >= 0 vec 1 atomic sum in C_block
module scatter target sm_80 {
  input K: i32[64]
  output C: i32[16] = 0
  kernel fill grid 1 warps 1 min_blocks 1 {
    layout #k = reg() lane(k:16x1, *:2) warp()
    %z = const 0 : i32[k: 16] #k
    st.global C[k], %z vec 1
  }
  kernel C grid 4 warps 1 min_blocks 1 {
    let x = block
    layout #n = reg() lane(n:32x1) warp()
    %k = ld.global K[x * 16 + n // 2] vec 1 : i32[n: 32] #n
    st.global C[%k // (n % 2 * 15 + 1) % 16], %k where %k >= 0 vec 1 atomic sum
  }
}

; CASE: too few terms for each element
; RUN: block-scatters {"multiprocessors": 1}
; UNCHANGED
module scatter target sm_80 {
  input K: i32[256]
  output C: i32[512] = 0
  kernel fill grid 4 warps 4 min_blocks 1 {
    let b = block
    layout #k = reg() lane(k:32x1) warp(k:4x32)
    %z = const 0 : i32[k: 128] #k
    st.global C[b * 128 + k], %z vec 1
  }
  kernel C grid 8 warps 1 min_blocks 1 {
    let x = block
    layout #t = reg() lane(t:32x1) warp()
    %k = ld.global K[x * 32 + t] vec 1 : i32[t: 32] #t
    st.global C[%k], %k where %k >= 0 and %k < 512 vec 1 atomic sum
  }
}

; CASE: what tiles reach does not fit in shared memory
; RUN: block-scatters {"multiprocessors": 1}
; UNCHANGED
module scatter target sm_80 {
  input K: i32[256]
  output C: i32[512, 32] = 0
  kernel fill grid 512 warps 1 min_blocks 1 {
    let b = block
    layout #k = reg() lane(k:32x1) warp()
    %z = const 0 : i32[k: 32] #k
    st.global C[b, k], %z vec 1
  }
  kernel C grid 8 warps 1 min_blocks 1 {
    let x = block
    layout #t = reg() lane(t:32x1) warp()
    %k = ld.global K[x * 32 + t] vec 1 : i32[t: 32] #t
    st.global C[%k, t], %k where %k >= 0 and %k < 512 vec 1 atomic sum
  }
}

; CASE: the numbers of tiles and of elements are known only at launch, and tiles go through shared memory
; RUN: block-scatters
; COMPLETE: allocate-shared, synchronize
; CHECK: kernel C grid (N + 511) // 512 warps 2
; CHECK: let chunk = block
; CHECK: smem C_block : i32[key: 100] stages 1
; CHECK: for x in chunk * 8..min(chunk * 8 + 8, (N + 63) // 64) carry() {
; CHECK: st.shared in_K
; CHECK: st.global C[%k], %v where x * 64 + t < N and %k >= 0 and %k < B vec 1 atomic sum in C_block
module scatter target sm_80 {
  input K: i32[N]
  output C: i32[B] = 0
  param N: i32 <= 100000
  param B: i32 <= 100
  kernel fill grid (B + 31) // 32 warps 1 min_blocks 1 {
    let b = block
    layout #k = reg() lane(k:32x1) warp()
    %z = const 0 : i32[k: 32] #k
    st.global C[b * 32 + k], %z where b * 32 + k < B vec 1
  }
  kernel C grid (N + 63) // 64 warps 2 min_blocks 1 {
    let x = block
    layout #t = reg() lane(t:32x1) warp(t:2x32)
    layout #run = reg() lane(t:32x1) warp(t:2x32)
    smem in_K : i32[t: 64] stages 1 swizzle 0 pad 0 @ 0
    %k_tile = ld.global K[x * 64 + t] where x * 64 + t < N vec 1 : i32[t: 64] #t
    st.shared in_K[0], %k_tile vec 1
    barrier
    %k = ld.shared in_K[0] vec 1 : i32[t: 64] #run
    %v = const 1 : i32[t: 64] #run
    st.global C[%k], %v where x * 64 + t < N and %k >= 0 and %k < B vec 1 atomic sum
  }
}

; CASE: the numbers of tiles and of elements are known only at launch, and so is that of a block
; RUN: block-scatters {"multiprocessors": 4}
; COMPLETE: allocate-shared, synchronize
; CHECK: let chunk = block
; CHECK: for x in chunk * min(max(7, (N + 2047) // 2048), max(2, (N + 63) // 128))..min(
; CHECK: st.shared in_K
; CHECK: st.global C[%k], %v where x * 64 + t < N and %k >= 0 and %k < B vec 1 atomic sum in C_block
module scatter target sm_80 {
  input K: i32[N]
  output C: i32[B] = 0
  param N: i32 <= 100000
  param B: i32 <= 100
  kernel fill grid (B + 31) // 32 warps 1 min_blocks 1 {
    let b = block
    layout #k = reg() lane(k:32x1) warp()
    %z = const 0 : i32[k: 32] #k
    st.global C[b * 32 + k], %z where b * 32 + k < B vec 1
  }
  kernel C grid (N + 63) // 64 warps 2 min_blocks 1 {
    let x = block
    layout #t = reg() lane(t:32x1) warp(t:2x32)
    layout #run = reg() lane(t:32x1) warp(t:2x32)
    smem in_K : i32[t: 64] stages 1 swizzle 0 pad 0 @ 0
    %k_tile = ld.global K[x * 64 + t] where x * 64 + t < N vec 1 : i32[t: 64] #t
    st.shared in_K[0], %k_tile vec 1
    barrier
    %k = ld.shared in_K[0] vec 1 : i32[t: 64] #run
    %v = const 1 : i32[t: 64] #run
    st.global C[%k], %v where x * 64 + t < N and %k >= 0 and %k < B vec 1 atomic sum
  }
}

; CASE: the numbers of tiles are known only at launch, and a tile has a copy of the elements by its number
; RUN: block-scatters
; UNCHANGED
module scatter target sm_80 {
  input K: i32[N]
  temp C: i32[4, B] = 0
  output O: i32[B]
  param N: i32 <= 100000
  param B: i32 <= 100
  kernel fill grid (B + 31) // 32 * 4 warps 1 min_blocks 1 {
    let b = block // 4
    let c = block % 4
    layout #k = reg() lane(k:32x1) warp()
    %z = const 0 : i32[k: 32] #k
    st.global C[c, b * 32 + k], %z where b * 32 + k < B vec 1
  }
  kernel C grid (N + 1023) // 1024 warps 2 min_blocks 1 {
    let x = block
    layout #t = reg(t:16x64) lane(t:32x1) warp(t:2x32)
    %k = ld.global K[x * 1024 + t] where x * 1024 + t < N vec 1 : i32[t: 1024] #t
    %v = const 1 : i32[t: 1024] #t
    st.global C[x % 4, %k], %v where x * 1024 + t < N and %k >= 0 and %k < B vec 1 atomic sum
  }
  kernel O grid (B + 31) // 32 warps 1 min_blocks 1 {
    let b = block
    layout #k = reg() lane(k:32x1) warp()
    layout #c = reg(c:4x1) lane(k:32x1) warp()
    %c = ld.global C[c, b * 32 + k] where b * 32 + k < B vec 1 : i32[c: 4, k: 32] #c
    %s = reduce sum %c over c : i32[k: 32] #k
    st.global O[b * 32 + k], %s where b * 32 + k < B vec 1
  }
}

; CASE: elements of a tile that differ by another position than their key
; RUN: block-scatters {"multiprocessors": 1}
; COMPLETE: allocate-shared, synchronize
; CHECK: kernel C grid 8 warps 2
; CHECK: smem C_block : i32[key: 24] stages 1
; CHECK: st.global C[y, c, %k], %v where c < 3 and %k >= 0 and %k < 8 vec 1 atomic sum in C_block
module scatter target sm_80 {
  input K: i32[2, 128, 3]
  output C: i32[2, 3, 8] = 0
  kernel fill grid 2 warps 1 min_blocks 1 {
    let y = block
    layout #k = reg(r:3x1) lane(k:8x1, *:4) warp()
    %z = const 0 : i32[r: 3, k: 8] #k
    st.global C[y, r, k], %z vec 1
  }
  kernel C grid 16 warps 2 min_blocks 1 {
    let y = block // 8
    let x = block % 8
    layout #t = reg() lane(c:4x1, t:8x1) warp(t:2x8)
    %k = ld.global K[y, x * 16 + t, c] where c < 3 vec 1 : i32[t: 16, c: 4] #t
    %v = const 1 : i32[t: 16, c: 4] #t
    st.global C[y, c, %k], %v where c < 3 and %k >= 0 and %k < 8 vec 1 atomic sum
  }
}
