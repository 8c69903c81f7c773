; Stores of accumulators go through shared memory and the TMA unit.

; CASE: the ops of a TMA store
; INPUT: product.ma
; PLAN: {"mapping": {"engine": "warpgroup", "epilogue": "tma"}}
; RUN: tma-stores
; RUN: specialise-warps
; COMPLETE: allocate-shared, synchronize
; CHECK: smem out_C : f16[i: 64, j: 64] stages 2 swizzle 128
; CHECK: role consumers
; CHECK: %c_f16 = cast %c : f16[i: 64, j: 64] #acc
; CHECK-NEXT: tma.wait 0 read
; CHECK-NEXT: barrier (1 + consumer), 128
; CHECK-NEXT: st.matrix out_C[consumer] swizzle 128, %c_f16
; CHECK-NEXT: fence.proxy
; CHECK-NEXT: barrier (1 + consumer), 128
; CHECK-NEXT: tma.store out_C[consumer] swizzle 128, C[i0 * 128 + consumer * 64 + i, j0 * 64 + j]
; CHECK-NEXT: tma.commit
; CHECK-NEXT: tma.wait 0 read
; CHECK-NOT: st.global

; CASE: rows beyond the end need no mask
; INPUT: product.ma
; EDIT: 256 => 200
; RUN: tma-stores {"epilogue": "tma"}
; COMPLETE: allocate-shared, synchronize, await-copies
; CHECK-NOT: st.global
; CHECK: tma.store out_C
; CHECK-NOT: st.global

; CASE: a mask that is not the bounds
; INPUT: product.ma
; EDIT: + i < 256 => + i < 100
; RUN: tma-stores {"epilogue": "tma"}
; UNCHANGED

; CASE: a mask of whole tiles
; INPUT: product.ma
; EDIT: where i0 * 128 + consumer * 64 + i < 256 => where i0 < 1
; RUN: tma-stores {"epilogue": "tma"}
; UNCHANGED

; CASE: stmatrix moves 16 bits
; INPUT: product.ma
; EDIT: output C: f16 => output C: f32
; RUN: tma-stores {"epilogue": "tma"}
; UNCHANGED

; CASE: every second column
; INPUT: product.ma
; EDIT: j0 * 64 + j], %c where i0 * 128 + consumer * 64 + i < 256 vec 2 => j0 * 64 + 2 * j], %c where i0 * 128 + consumer * 64 + i < 256 vec 1
; RUN: tma-stores {"epilogue": "tma"}
; UNCHANGED

; CASE: rows of 132 bytes
; INPUT: product.ma
; EDIT: output C: f16[256, 64] => output C: f16[256, 66]
; RUN: tma-stores {"epilogue": "tma"}
; UNCHANGED

; CASE: the schedule does not ask for it
; INPUT: product.ma
; RUN: tma-stores {"epilogue": "direct"}
; UNCHANGED

; CASE: a kernel with roles stays
; INPUT: product.ma
; FIRST: specialise-warps
; RUN: tma-stores {"epilogue": "tma"}
; UNCHANGED

; CASE: stores of one shape share a buffer
; INPUT: product.ma
; EDIT: output C: f16[256, 64] => output C: f16[256, 64]\n output D: f16[256, 64]
; EDIT: st.global C[i0 * 128 + consumer * 64 + i, j0 * 64 + j], %c where i0 * 128 + consumer * 64 + i < 256 vec 2 => st.global C[i0 * 128 + consumer * 64 + i, j0 * 64 + j], %c vec 2\nst.global D[i0 * 128 + consumer * 64 + i, j0 * 64 + j], %c vec 2
; PLAN: {"mapping": {"engine": "warpgroup", "epilogue": "tma"}}
; RUN: tma-stores
; RUN: specialise-warps
; COMPLETE: allocate-shared, synchronize
; CHECK: smem out_C
; CHECK-NOT: smem out_
; CHECK: tma.store out_C[consumer * 2]
; CHECK: tma.store out_C[consumer * 2 + 1]

; CASE: stores of another type have a buffer of their own
; INPUT: product.ma
; EDIT: output C: f16[256, 64] => output C: f16[256, 64]\n output D: bf16[256, 64]
; EDIT: st.global C[i0 * 128 + consumer * 64 + i, j0 * 64 + j], %c where i0 * 128 + consumer * 64 + i < 256 vec 2 => st.global C[i0 * 128 + consumer * 64 + i, j0 * 64 + j], %c vec 2\nst.global D[i0 * 128 + consumer * 64 + i, j0 * 64 + j], %c vec 2
; RUN: tma-stores {"epilogue": "tma"}
; COMPLETE: allocate-shared, synchronize, await-copies
; CHECK: smem out_C
; CHECK: smem out_D
; CHECK-NOT: smem out_

; CASE: consumers with tiles of their own have a stage each
; INPUT: product_one_consumer.ma
; PLAN: {"mapping": {"engine": "warpgroup", "epilogue": "tma", "persistent": "static", "tile_scheduling": "pingpong", "warpgroups": 3, "producer_registers": 32, "consumer_registers": 160}}
; RUN: tma-stores
; RUN: specialise-warps
; CHECK: smem out_C : f16[i: 64, j: 64] stages 3
; CHECK: st.matrix out_C[consumer]

; CASE: the stage of an operand that is no longer read serves the store
; The columns of v were called e; those of q are d.
; INPUT: chained.ma
; PLAN: {"mapping": {"engine": "warpgroup", "epilogue": "tma-aliased"}}
; RUN: tma-stores
; RUN: specialise-warps
; COMPLETE: allocate-shared, synchronize
; CHECK-NOT: smem out
; CHECK: smem v : f16[j: 64, d: 64]
; CHECK-NOT: smem out
; CHECK: role consumers
; CHECK: mbar.wait full_q[q_stage]
; CHECK: mma wgmma.f16 smem q[q_stage * 2 + consumer]
; CHECK: st.matrix q[q_stage * 2 + consumer] swizzle 128, %o_f16
; CHECK: tma.store q[q_stage * 2 + consumer] swizzle 128, O[i0 * 128 + consumer * 64 + i, d]
; CHECK: tma.commit
; CHECK: tma.wait 0 read
; CHECK: mbar.arrive empty_q[q_stage] each warp
; CHECK-NEXT: advance q

; CASE: no operand has a free stage
; INPUT: product.ma
; PLAN: {"mapping": {"engine": "warpgroup", "epilogue": "tma-aliased"}}
; RUN: tma-stores
; ERROR: epilogue tma-aliased: no operand has a free stage for the store of C

; CASE: an operand of the right shape, but the axis cannot have its name
; INPUT: chained.ma
; EDIT: %zero = const => for d in 0..1 carry() {\nyield\n}\n%zero = const
; PLAN: {"mapping": {"engine": "warpgroup", "epilogue": "tma-aliased"}}
; RUN: tma-stores
; ERROR: tma-aliased

; CASE: a tile of 256 columns that does not fit goes in pieces through two stages
; There is room for two stages of operands, and not for the whole tile.
; INPUT: product_256_columns.ma
; PLAN: {"mapping": {"engine": "warpgroup", "epilogue": "tma"}}
; RUN: tma-stores {"limit": 89152}
; RUN: specialise-warps
; COMPLETE: allocate-shared, synchronize
; CHECK: smem out_C : f16[i: 64, j: 64] stages 4 swizzle 128
; CHECK: %c_0 = slice %c at j 0
; CHECK: tma.wait 0 read
; CHECK-NEXT: barrier (1 + consumer), 128
; CHECK: st.matrix out_C[consumer * 2] swizzle 128, %c_0_f16
; CHECK-NEXT: fence.proxy
; CHECK-NEXT: tma.wait 0 read
; CHECK-NEXT: barrier (1 + consumer), 128
; CHECK-NEXT: tma.store out_C[consumer * 2] swizzle 128, C[i0 * 128 + consumer * 64 + i, j0 * 256 + j]
; CHECK-NEXT: tma.commit
; CHECK-NEXT: %c_64 = slice %c at j 64
; CHECK: st.matrix out_C[consumer * 2 + 1] swizzle 128, %c_64_f16
; CHECK-NEXT: fence.proxy
; CHECK-NEXT: tma.wait 0 read
; CHECK-NEXT: barrier (1 + consumer), 128
; CHECK-NEXT: tma.store out_C[consumer * 2 + 1] swizzle 128, C[i0 * 128 + consumer * 64 + i, j0 * 256 + {{j \+ 64|64 \+ j}}]
; CHECK-NEXT: tma.commit
; CHECK-NEXT: %c_128 = slice %c at j 128
; CHECK: st.matrix out_C[consumer * 2] swizzle 128, %c_128_f16
; CHECK: tma.store out_C[consumer * 2] swizzle 128, C[i0 * 128 + consumer * 64 + i, j0 * 256 + {{j \+ 128|128 \+ j}}]
; CHECK: %c_192 = slice %c at j 192
; CHECK: st.matrix out_C[consumer * 2 + 1] swizzle 128, %c_192_f16
; CHECK: tma.store out_C[consumer * 2 + 1] swizzle 128, C[i0 * 128 + consumer * 64 + i, j0 * 256 + {{j \+ 192|192 \+ j}}]
; CHECK-NEXT: tma.commit
; CHECK-NEXT: tma.wait 0 read
; CHECK-NOT: slice

; CASE: a tile of 160 columns goes in pieces of 32
; INPUT: product_256_columns.ma
; EDIT: 256 => 160
; EDIT: j:32x8 => j:20x8
; EDIT: smem b : f16[j: 160, k: 64] => smem b : f16[j: 160, k: 64]
; PLAN: {"mapping": {"engine": "warpgroup", "epilogue": "tma"}}
; RUN: tma-stores {"limit": 76864}
; RUN: specialise-warps
; COMPLETE: allocate-shared, synchronize
; CHECK: smem out_C : f16[i: 64, j: 32] stages 4 swizzle 64
; CHECK: st.matrix out_C[consumer * 2] swizzle 64, %c_0_f16
; CHECK: st.matrix out_C[consumer * 2 + 1] swizzle 64, %c_32_f16
; CHECK: st.matrix out_C[consumer * 2] swizzle 64, %c_64_f16
; CHECK: st.matrix out_C[consumer * 2 + 1] swizzle 64, %c_96_f16
; CHECK: st.matrix out_C[consumer * 2] swizzle 64, %c_128_f16
; CHECK: tma.wait 0 read
; CHECK-NOT: st.matrix

; CASE: a tile of 192 columns goes in pieces of 64
; INPUT: product_256_columns.ma
; EDIT: 256 => 192
; EDIT: j:32x8 => j:24x8
; PLAN: {"mapping": {"engine": "warpgroup", "epilogue": "tma"}}
; RUN: tma-stores {"limit": 80960}
; RUN: specialise-warps
; COMPLETE: allocate-shared, synchronize
; CHECK: smem out_C : f16[i: 64, j: 64] stages 4 swizzle 128
; CHECK: st.matrix out_C[consumer * 2] swizzle 128, %c_0_f16
; CHECK: st.matrix out_C[consumer * 2 + 1] swizzle 128, %c_64_f16
; CHECK: st.matrix out_C[consumer * 2] swizzle 128, %c_128_f16
; CHECK: tma.wait 0 read
; CHECK-NOT: st.matrix

; CASE: a tile that fits goes whole
; INPUT: product_256_columns.ma
; PLAN: {"mapping": {"engine": "warpgroup", "epilogue": "tma", "stages": 2}}
; RUN: tma-stores
; COMPLETE: allocate-shared, synchronize, await-copies
; CHECK-NOT: slice
; CHECK: tma.store
; CHECK-NOT: slice

; CASE: four stages of a wide tile leave room for pieces only
; INPUT: product_256_columns.ma
; PLAN: {"mapping": {"engine": "warpgroup", "epilogue": "tma", "stages": 4}}
; RUN: tma-stores
; RUN: specialise-warps
; RUN: allocate-shared
; CHECK-COUNT-4: = slice
; CHECK-NOT: = slice

; CASE: the name of the new buffer is taken
; INPUT: product.ma
; EDIT: smem b : => smem out_C :
; EDIT: tma.load b[0] => tma.load out_C[0]
; EDIT: smem b[0] => smem out_C[0]
; RUN: tma-stores {"epilogue": "tma"}
; COMPLETE: allocate-shared, synchronize, await-copies
; CHECK: smem out_C : f16[j: 64, k: 64]
; CHECK: smem out0_C : f16[i: 64, j: 64]
; CHECK: tma.store out0_C[consumer]

; CASE: an axis of one element beside rows and columns
; INPUT: product.ma
; EDIT: st.global C[i0 * 128 + consumer * 64 + i, j0 * 64 + j], %c => %one = const 1.0 : f32[u: 1, i: 64, j: 64] #acc\n%d = mul %c, %one : f32[u: 1, i: 64, j: 64] #acc\nst.global C[i0 * 128 + consumer * 64 + i, j0 * 64 + j], %d
; PLAN: {"mapping": {"engine": "warpgroup", "epilogue": "tma"}}
; RUN: tma-stores
; COMPLETE: allocate-shared, synchronize
; CHECK: tma.store out_C[consumer]

; CASE: two tiles of 256 columns, for which two stages do not fit, go in pieces
; INPUT: product_256_columns.ma
; EDIT: output C: f16[128, 256] => output C: f16[128, 256]\n output D: f16[128, 256]
; EDIT: st.global C[i0 * 128 + consumer * 64 + i, j0 * 256 + j], %c where i0 * 128 + consumer * 64 + i < 128 vec 2 => st.global C[i0 * 128 + consumer * 64 + i, j0 * 256 + j], %c vec 2\nst.global D[i0 * 128 + consumer * 64 + i, j0 * 256 + j], %c vec 2
; PLAN: {"mapping": {"engine": "warpgroup", "epilogue": "tma"}}
; RUN: tma-stores {"limit": 150000}
; CHECK: smem out_C : f16[i: 64, j: 64] stages 4
; CHECK-NOT: smem out_
; CHECK: slice %c at j 0
