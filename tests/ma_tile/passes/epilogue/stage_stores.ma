; Stores of accumulators go through shared memory, so that a warp writes whole pieces of a row.

; CASE: rows that begin anywhere in a sector
; INPUT: product.ma
; EDIT: output C: f16[256, 64] => output C: f16[256, 67]
; EDIT: %c where i0 * 128 + consumer * 64 + i < 256 vec 2 => %c where i0 * 128 + consumer * 64 + i < 256 vec 1
; PLAN: {"mapping": {"engine": "warpgroup", "epilogue": "tma"}}
; RUN: stage-stores
; RUN: specialise-warps
; COMPLETE: allocate-shared, synchronize
; CHECK: layout #rows_i_j = reg(j:8x1, i:4x4) lane(j:8x8, i:4x1) warp(i:4x16)
; CHECK: smem rows_C : f16[i: 64, j: 64] stages 4 swizzle 0 pad 16
; CHECK: role consumers
; CHECK: %c_f16 = cast %c : f16[i: 64, j: 64] #acc
; CHECK-NEXT: barrier (1 + consumer), 128
; CHECK-NEXT: st.shared rows_C[consumer * 2], %c_f16 vec 2
; CHECK-NEXT: barrier (1 + consumer), 128
; CHECK-NEXT: st.rows rows_C[consumer * 2], C[i0 * 128 + consumer * 64 + i, j0 * 64 + j] where i0 * 128 + consumer * 64 + i < 256 threads #rows_i_j
; CHECK-NOT: barrier

; CASE: rows that begin anywhere, under a condition that holds on no range
; INPUT: product.ma
; EDIT: output C: f16[256, 64] => output C: f16[256, 67]
; EDIT: %c where i0 * 128 + consumer * 64 + i < 256 vec 2 => %c where j % 3 < 2 vec 1
; PLAN: {"mapping": {"engine": "warpgroup", "epilogue": "tma"}}
; RUN: stage-stores
; COMPLETE: allocate-shared, synchronize, await-copies
; CHECK: smem rows_C : f16[i: 64, j: 64] stages 4 swizzle 128
; CHECK: %c_f16_rows = ld.shared rows_C[{{.*}}] swizzle 128 vec 1
; CHECK: st.global C[{{.*}}], %c_f16_rows where j % 3 < 2 vec 1

; CASE: columns that are a box of an image, of which eight are contiguous
; INPUT: product.ma
; EDIT: output C: f16[256, 64] => output C: f16[256, 8, 9]
; EDIT: st.global C[i0 * 128 + consumer * 64 + i, j0 * 64 + j], %c where i0 * 128 + consumer * 64 + i < 256 vec 2 => st.global C[i0 * 128 + consumer * 64 + i, j // 8, j % 8], %c where i0 * 128 + consumer * 64 + i < 256 vec 1
; PLAN: {"mapping": {"engine": "warpgroup", "epilogue": "tma"}}
; RUN: stage-stores
; COMPLETE: allocate-shared, synchronize, await-copies
; CHECK-NOT: st.rows
; CHECK: st.global C[

; CASE: elements of one byte, in rows that are whole vectors
; INPUT: product.ma
; EDIT: output C: f16 => output C: f8e4m3
; RUN: stage-stores
; PLAN: {"mapping": {"engine": "warpgroup", "epilogue": "tma"}}
; COMPLETE: allocate-shared, synchronize, await-copies
; CHECK: smem rows_C : f8e4m3[i: 64, j: 64] stages 4 swizzle 64
; CHECK: st.global C[{{.*}}], {{.*}} vec 16

; CASE: a result that is contiguous along the rows of the accumulator
; INPUT: product.ma
; EDIT: output C: f16[256, 64] => output C: f16[64, 256]
; EDIT: st.global C[i0 * 128 + consumer * 64 + i, j0 * 64 + j], %c where i0 * 128 + consumer * 64 + i < 256 vec 2 => st.global C[j0 * 64 + j, i0 * 128 + consumer * 64 + i], %c vec 1
; PLAN: {"mapping": {"engine": "warpgroup", "epilogue": "tma"}}
; RUN: stage-stores
; RUN: specialise-warps
; COMPLETE: allocate-shared, synchronize
; CHECK: layout #rows_j_i = reg(i:8x1, j:4x4) lane(i:8x8, j:4x1) warp(j:4x16)
; CHECK: smem rows_C : f16[j: 64, i: 64] stages 4 swizzle 128
; CHECK: st.shared rows_C[consumer * 2] swizzle 128, %c_f16 vec 1
; CHECK: %c_f16_rows = ld.shared rows_C[consumer * 2] swizzle 128 vec 8
; CHECK: st.global C[j0 * 64 + j, i0 * 128 + consumer * 64 + i], %c_f16_rows vec 8

; CASE: pieces alternate between two stages
; INPUT: product_256_columns.ma
; EDIT: output C: f16 => output C: f8e4m3
; PLAN: {"mapping": {"engine": "warpgroup", "epilogue": "tma"}}
; RUN: stage-stores
; RUN: specialise-warps
; COMPLETE: allocate-shared, synchronize
; CHECK: barrier (1 + consumer), 128
; CHECK-NEXT: st.shared rows_C[consumer * 2] swizzle 128, %c_0_f8e4m3 vec 2
; CHECK-NEXT: barrier (1 + consumer), 128
; CHECK-NEXT: %c_0_f8e4m3_rows = ld.shared rows_C[consumer * 2]
; CHECK-NEXT: st.global C[i0 * 128 + consumer * 64 + i, j0 * 256 + j], %c_0_f8e4m3_rows
; CHECK-NEXT: %c_128 = slice %c at j 128
; CHECK-NEXT: %c_128_f8e4m3 = cast %c_128
; CHECK-NEXT: st.shared rows_C[consumer * 2 + 1] swizzle 128, %c_128_f8e4m3 vec 2
; CHECK-NEXT: barrier (1 + consumer), 128
; CHECK-NEXT: %c_128_f8e4m3_rows = ld.shared rows_C[consumer * 2 + 1]

; CASE: one stage, with two barriers for each piece
; INPUT: product_256_columns.ma
; EDIT: output C: f16[128, 256] => output C: f16[128, 257]
; EDIT: < 128 vec 2 => < 128 vec 1
; PLAN: {"mapping": {"engine": "warpgroup", "epilogue": "tma"}}
; RUN: stage-stores {"limit": 135000}
; RUN: specialise-warps
; COMPLETE: allocate-shared, synchronize
; CHECK: smem rows_C : f16[i: 64, j: 128] stages 2 swizzle 0 pad 16
; CHECK: st.rows rows_C[consumer], C
; CHECK: barrier (1 + consumer), 128
; CHECK-NEXT: st.shared rows_C[consumer], %c_128_f16 vec 2
; CHECK-NEXT: barrier (1 + consumer), 128
; CHECK-NEXT: st.rows rows_C[consumer], C

; CASE: pieces of 32 columns where there is little room
; INPUT: product_256_columns.ma
; EDIT: output C: f16[128, 256] => output C: f8e4m3[128, 272]
; PLAN: {"mapping": {"engine": "warpgroup", "epilogue": "tma"}}
; RUN: stage-stores {"limit": 115000}
; COMPLETE: allocate-shared, synchronize, await-copies
; CHECK: smem rows_C : f8e4m3[i: 64, j: 32] stages 4 swizzle 32

; CASE: no room
; INPUT: product_256_columns.ma
; EDIT: output C: f16[128, 256] => output C: f16[128, 257]
; EDIT: < 128 vec 2 => < 128 vec 1
; PLAN: {"mapping": {"engine": "warpgroup", "epilogue": "tma"}}
; RUN: stage-stores {"limit": 100000}
; UNCHANGED

; CASE: whole sectors from registers
; INPUT: product.ma
; EDIT: output C: f16 => output C: f32
; PLAN: {"mapping": {"engine": "warpgroup", "epilogue": "tma"}}
; RUN: stage-stores
; UNCHANGED

; CASE: the schedule does not ask for it
; INPUT: product.ma
; EDIT: output C: f16 => output C: f8e4m3
; PLAN: {"mapping": {"engine": "warpgroup", "epilogue": "direct"}}
; RUN: stage-stores
; UNCHANGED

; CASE: a kernel with roles stays
; INPUT: product.ma
; EDIT: output C: f16 => output C: f8e4m3
; PLAN: {"mapping": {"engine": "warpgroup", "epilogue": "tma"}}
; FIRST: specialise-warps
; RUN: stage-stores
; UNCHANGED

; CASE: elements at places that are read
; INPUT: product.ma
; EDIT: output C: f16[256, 64] => output C: f16[256, 67]\n input P: i32[64]
; EDIT: %zero = const => %p = ld.global P[j] vec 1 : i32[j: 64] #places\n%zero = const
; EDIT: layout #acc = => layout #places = reg(j:2x1, j:8x8) lane(j:4x2, *:8) warp(*:4)\nlayout #acc =
; EDIT: st.global C[i0 * 128 + consumer * 64 + i, j0 * 64 + j], %c where i0 * 128 + consumer * 64 + i < 256 vec 2 => st.global C[i0 * 128 + consumer * 64 + i, %p], %c where %p >= 0 and %p < 67 vec 1
; PLAN: {"mapping": {"engine": "warpgroup", "epilogue": "tma"}}
; RUN: stage-stores
; UNCHANGED

; CASE: consumers with tiles of their own have two stages each
; INPUT: product_one_consumer.ma
; EDIT: output C: f16 => output C: f8e4m3
; PLAN: {"mapping": {"engine": "warpgroup", "epilogue": "tma", "persistent": "static", "tile_scheduling": "pingpong", "warpgroups": 2}}
; RUN: stage-stores
; RUN: specialise-warps
; RUN: persistent-grid
; COMPLETE: allocate-shared, synchronize
; CHECK: smem rows_C : f8e4m3[i: 64, j: 64] stages 4 swizzle 64
; CHECK: barrier (1 + consumer), 128
; CHECK: st.shared rows_C[consumer * 2]

; CASE: a value whose layout is not that of an accumulator
; INPUT: product.ma
; EDIT: output C: f16[256, 64] => output C: f16[256, 67]\n input D: f32[256, 64]
; EDIT: layout #acc = => layout #rows = reg(j:8x1, i:4x4) lane(j:8x8, i:4x1) warp(i:4x16)\nlayout #acc =
; EDIT: st.global C[i0 * 128 + consumer * 64 + i, j0 * 64 + j], %c where i0 * 128 + consumer * 64 + i < 256 vec 2 => %d = ld.global D[i0 * 128 + consumer * 64 + i, j0 * 64 + j] vec 4 : f32[i: 64, j: 64] #rows\nst.global C[i0 * 128 + consumer * 64 + i, j0 * 64 + j], %d where i0 * 128 + consumer * 64 + i < 256 vec 1
; PLAN: {"mapping": {"engine": "warpgroup", "epilogue": "tma"}}
; RUN: stage-stores
; UNCHANGED
