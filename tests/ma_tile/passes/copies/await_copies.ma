; Kernels without roles: one thread issues the TMA loads of a place, all threads wait for them.

; CASE: loads in a row are issued and awaited together
; INPUT: product.ma
; FIRST: allocate-shared
; FIRST: synchronize
; RUN: await-copies
; AGAIN
; COMPLETE:
; CHECK: mbar landed stages 1 arrivals 1 @
; CHECK: pipeline landed stages 1
; CHECK-NOT: fence.proxy
; CHECK: barrier
; CHECK: if consumer == 0 {
; CHECK-NEXT: mbar.expect landed[0] 24576
; CHECK-NEXT: tma.load a[0] swizzle 128, A[i0 * 128 + i, t * 64 + k] mbar landed[0]
; CHECK-NEXT: tma.load a[1] swizzle 128, A[i0 * 128 + 64 + i, t * 64 + k] mbar landed[0]
; CHECK-NEXT: tma.load b[0] swizzle 128, B[j0 * 64 + j, t * 64 + k] mbar landed[0]
; CHECK-NEXT: }
; CHECK-NEXT: mbar.wait landed[0] parity landed_phase
; CHECK-NEXT: advance landed
; CHECK-NEXT: mma
; CHECK-NOT: barrier
; CHECK-NOT: fence.proxy

; CASE: one consumer needs no condition, and each place has a wait
; INPUT: chained_one_consumer.ma
; FIRST: allocate-shared
; FIRST: synchronize
; RUN: await-copies
; COMPLETE:
; CHECK-NOT: if consumer
; CHECK: mbar.expect landed[0] 8192
; CHECK-NEXT: tma.load q[0]
; CHECK: mbar.wait landed[0]
; CHECK: mbar.expect landed[0] 8192
; CHECK-NEXT: tma.load k[0]
; CHECK: mbar.wait landed[0]
; CHECK: mbar.expect landed[0] 8192
; CHECK-NEXT: tma.load v[0]
; CHECK: mbar.wait landed[0]
; CHECK-NOT: mbar.wait
; CHECK-NOT: if consumer

; CASE: what threads write is fenced from loads
; A TMA store goes on to read its stage, so no bytes are shared.
; INPUT: product.ma
; FIRST: tma-stores {"epilogue": "tma"}
; FIRST: allocate-shared
; FIRST: synchronize
; RUN: await-copies
; COMPLETE:
; CHECK: smem a : f16[i: 64, k: 64] stages 2 {{.*}} @ 0
; CHECK-NEXT: smem b : f16[j: 64, k: 64] stages 1 {{.*}} @ 32768
; CHECK-NEXT: smem out_C : f16[i: 64, j: 64] stages 2 {{.*}} @ 16384
; CHECK: fence.proxy
; CHECK: barrier
; CHECK: tma.load
; CHECK: barrier (1 + consumer), 128
; CHECK: st.matrix
; CHECK-NEXT: fence.proxy
; CHECK-NEXT: barrier (1 + consumer), 128
; CHECK: tma.store

; CASE: a kernel with roles stays
; INPUT: product.ma
; FIRST: specialise-warps
; RUN: await-copies
; UNCHANGED

; CASE: an address that each consumer computes
; INPUT: product.ma
; EDIT: smem a  => layout #one = reg() lane(*:32) warp(*:4)\nsmem a 
; EDIT: %zero = const => %p = index consumer : i32 #one\n%zero = const
; EDIT: A[i0 * 128 + => A[%p +
; FIRST: allocate-shared
; FIRST: synchronize
; RUN: await-copies
; ERROR: each consumer computes the address from which it loads a

; CASE: loads at the end of a block are issued and awaited
; INPUT: product.ma
; EDIT: < 256 vec 2 => < 256 vec 2\ntma.load b[0] swizzle 128, B[j, k]
; FIRST: allocate-shared
; FIRST: synchronize
; RUN: await-copies
; COMPLETE:
; CHECK: st.global
; CHECK: mbar.expect landed[0] 8192
; CHECK-NEXT: tma.load b[0] swizzle 128, B[j, k] mbar landed[0]
; CHECK: mbar.wait landed[0]
