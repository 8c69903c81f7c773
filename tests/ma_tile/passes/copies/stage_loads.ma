; Tiles that elementwise work in a loop of MMAs reads come by TMA copies.

; CASE: a mask that is added to the results of the first product
; INPUT: chained.ma
; EDIT: input V: => input M: f16[256, 192]\n input V:
; EDIT: %sh = cast %s => %m = ld.global M[i0 * 128 + consumer * 64 + i, t * 64 + j] vec 2 : f16[i: 64, j: 64] #s\n%mf = cast %m : f32[i: 64, j: 64] #s\n%sm = add %s, %mf : f32[i: 64, j: 64] #s\n%sh = cast %sm
; PLAN: {"mapping": {"engine": "warpgroup", "stages": 2}}
; RUN: stage-loads
; RUN: specialise-warps
; COMPLETE: allocate-shared, synchronize
; CHECK: smem in_M : f16[i: 64, j: 64] stages 4 swizzle 128
; CHECK: role producer
; CHECK: tma.load in_M[in_M_stage * 2] swizzle 128, M[i0 * 128 + i, t * 64 + j] mbar full_in_M[in_M_stage]
; CHECK: tma.load in_M[in_M_stage * 2 + 1] swizzle 128, M[i0 * 128 + 64 + i, t * 64 + j] mbar full_in_M[in_M_stage]
; CHECK: role consumers
; CHECK: mbar.wait full_in_M[in_M_stage]
; CHECK: %m = ld.shared in_M[in_M_stage * 2 + consumer] swizzle 128 vec 2

; CASE: a mask that another kernel made
; INPUT: chained.ma
; EDIT: input V: => temp M: f16[256, 192]\n input V:
; EDIT: %sh = cast %s => %m = ld.global M[i0 * 128 + consumer * 64 + i, t * 64 + j] vec 2 : f16[i: 64, j: 64] #s\n%mf = cast %m : f32[i: 64, j: 64] #s\n%sm = add %s, %mf : f32[i: 64, j: 64] #s\n%sh = cast %sm
; PLAN: {"mapping": {"engine": "warpgroup", "stages": 2}}
; RUN: stage-loads
; CHECK: tma.load in_M[consumer] swizzle 128, M[i0 * 128 + consumer * 64 + i, t * 64 + j]

; CASE: rows that no TMA copy loads
; INPUT: chained.ma
; EDIT: input V: => input M: f16[256, 193]\n input V:
; EDIT: %sh = cast %s => %m = ld.global M[i0 * 128 + consumer * 64 + i, t * 64 + j] vec 1 : f16[i: 64, j: 64] #s\n%mf = cast %m : f32[i: 64, j: 64] #s\n%sm = add %s, %mf : f32[i: 64, j: 64] #s\n%sh = cast %sm
; PLAN: {"mapping": {"engine": "warpgroup", "stages": 2}}
; RUN: stage-loads
; UNCHANGED

; CASE: no room for the stages
; INPUT: chained.ma
; EDIT: input V: => input M: f16[256, 192]\n input V:
; EDIT: %sh = cast %s => %m = ld.global M[i0 * 128 + consumer * 64 + i, t * 64 + j] vec 2 : f16[i: 64, j: 64] #s\n%mf = cast %m : f32[i: 64, j: 64] #s\n%sm = add %s, %mf : f32[i: 64, j: 64] #s\n%sh = cast %sm
; PLAN: {"mapping": {"engine": "warpgroup", "stages": 2}}
; RUN: stage-loads {"limit": 80000}
; UNCHANGED

; CASE: two tiles in a loop
; INPUT: chained.ma
; EDIT: input V: => input M: f16[256, 192]\n input V:
; EDIT: %sh = cast %s => %m = ld.global M[i0 * 128 + consumer * 64 + i, t * 64 + j] vec 2 : f16[i: 64, j: 64] #s\n%n = ld.global M[consumer * 64 + i, t * 64 + j] vec 2 : f16[i: 64, j: 64] #s\n%mf = cast %m : f32[i: 64, j: 64] #s\n%nf = cast %n : f32[i: 64, j: 64] #s\n%mn = add %mf, %nf : f32[i: 64, j: 64] #s\n%sm = add %s, %mn : f32[i: 64, j: 64] #s\n%sh = cast %sm
; PLAN: {"mapping": {"engine": "warpgroup", "stages": 2}}
; RUN: stage-loads
; UNCHANGED

; CASE: vectors along the loop share a pipeline, whose stage is released after their last use
; INPUT: chained.ma
; EDIT: input V: => input u: f32[4, 192]\n input w: f32[4, 192]\n input V:
; EDIT: layout #s = => layout #j = reg(j:2x1, j:8x8) lane(j:4x2, *:8) warp(*:4)\n layout #s =
; EDIT: %sh = cast %s => %u = ld.global u[1, t * 64 + j] vec 2 : f32[j: 64] #j\n%su = add %s, %u : f32[i: 64, j: 64] #s\n%w = ld.global w[2, t * 64 + j] vec 2 : f32[j: 64] #j\n%sw = mul %su, %w : f32[i: 64, j: 64] #s\n%sh = cast %sw
; PLAN: {"mapping": {"engine": "warpgroup", "stages": 2}}
; RUN: stage-loads
; RUN: specialise-warps
; RUN: async-mma
; COMPLETE: allocate-shared, synchronize
; CHECK: smem in_u : f32[j: 64] stages 2 swizzle 0
; CHECK: role producer
; CHECK: mbar.expect full_in_u_in_w
; CHECK-NEXT: tma.load in_u[in_u_in_w_stage], u[1, t * 64 + j] mbar full_in_u_in_w[in_u_in_w_stage]
; CHECK-NEXT: tma.load in_w[in_u_in_w_stage], w[2, t * 64 + j] mbar full_in_u_in_w[in_u_in_w_stage]
; CHECK: role consumers
; CHECK: mbar.wait full_in_u_in_w
; CHECK-NEXT: wg.wait
; CHECK: %u = ld.shared in_u[in_u_in_w_stage] vec 2
; CHECK-NEXT: %su = add %s, %u
; CHECK-NEXT: %w = ld.shared in_w[in_u_in_w_stage] vec 2
; CHECK-NEXT: %sw = mul %su, %w
; CHECK-NEXT: mbar.arrive empty_in_u_in_w

; CASE: a vector whose rows no TMA copy loads
; INPUT: chained.ma
; EDIT: input V: => input u: f32[4, 193]\n input V:
; EDIT: layout #s = => layout #j = reg(j:2x1, j:8x8) lane(j:4x2, *:8) warp(*:4)\n layout #s =
; EDIT: %sh = cast %s => %u = ld.global u[1, t * 64 + j] vec 1 : f32[j: 64] #j\n%su = add %s, %u : f32[i: 64, j: 64] #s\n%sh = cast %su
; PLAN: {"mapping": {"engine": "warpgroup", "stages": 2}}
; RUN: stage-loads
; UNCHANGED

; CASE: elements of a vector for each consumer
; INPUT: chained.ma
; EDIT: input V: => input u: f32[4, 192]\n input V:
; EDIT: layout #s = => layout #j = reg(j:2x1, j:8x8) lane(j:4x2, *:8) warp(*:4)\n layout #s =
; EDIT: %sh = cast %s => %u = ld.global u[consumer, t * 64 + j] vec 2 : f32[j: 64] #j\n%su = add %s, %u : f32[i: 64, j: 64] #s\n%sh = cast %su
; PLAN: {"mapping": {"engine": "warpgroup", "stages": 2}}
; RUN: stage-loads
; UNCHANGED

; CASE: stages of so few bytes that the second one starts nowhere a TMA copy can write
; INPUT: chained.ma
; EDIT: input V: => input u: bool[4, 192]\n input V:
; EDIT: layout #s = => layout #j = reg(j:2x1, j:8x8) lane(j:4x2, *:8) warp(*:4)\n layout #s =
; EDIT: %sh = cast %s => %u = ld.global u[1, t * 64 + j] vec 2 : bool[j: 64] #j\n%su = select %u, %s, %s : f32[i: 64, j: 64] #s\n%sh = cast %su
; PLAN: {"mapping": {"engine": "warpgroup", "stages": 2}}
; RUN: stage-loads
; UNCHANGED

; CASE: a vector of elements of two rows
; INPUT: chained.ma
; EDIT: input V: => input u: f32[6, 32]\n input V:
; EDIT: layout #s = => layout #j = reg(j:2x1, j:8x8) lane(j:4x2, *:8) warp(*:4)\n layout #s =
; EDIT: %sh = cast %s => %u = ld.global u[(t * 64 + j) // 32, (t * 64 + j) % 32] vec 2 : f32[j: 64] #j\n%su = add %s, %u : f32[i: 64, j: 64] #s\n%sh = cast %su
; PLAN: {"mapping": {"engine": "warpgroup", "stages": 2}}
; RUN: stage-loads
; UNCHANGED

; CASE: bytes whose halves become a left operand
; INPUT: packed_weights.ma
; PLAN: {"mapping": {"engine": "warpgroup", "stages": 3}}
; RUN: stage-loads
; RUN: specialise-warps
; COMPLETE: allocate-shared, synchronize
; CHECK: smem in_Q : u8[j: 64, b: 64] stages 6 swizzle 64
; CHECK: tma.load in_Q[in_Q_stage * 2 + 1] swizzle 64, Q[j0 * 128 + 64 + j, t * 64 + b] mbar full_in_Q[in_Q_stage]
; CHECK: role consumers
; CHECK: %q = ld.shared in_Q[in_Q_stage * 2 + consumer] swizzle 64 vec 4

; CASE: one stage has no pipeline
; INPUT: chained.ma
; EDIT: input V: => input M: f16[256, 192]\n input V:
; EDIT: %sh = cast %s => %m = ld.global M[i0 * 128 + consumer * 64 + i, t * 64 + j] vec 2 : f16[i: 64, j: 64] #s\n%mf = cast %m : f32[i: 64, j: 64] #s\n%sm = add %s, %mf : f32[i: 64, j: 64] #s\n%sh = cast %sm
; PLAN: {"mapping": {"engine": "warpgroup", "stages": 1}}
; RUN: stage-loads
; UNCHANGED

; CASE: a barrier of all threads, which keeps producers out
; INPUT: chained.ma
; EDIT: input V: => input M: f16[256, 192]\n input V:
; EDIT: %sh = cast %s => %m = ld.global M[i0 * 128 + consumer * 64 + i, t * 64 + j] vec 2 : f16[i: 64, j: 64] #s\n%mf = cast %m : f32[i: 64, j: 64] #s\n%sm = add %s, %mf : f32[i: 64, j: 64] #s\n%sh = cast %sm
; EDIT: %sm = add => barrier\n%sm = add
; PLAN: {"mapping": {"engine": "warpgroup", "stages": 2}}
; RUN: stage-loads
; UNCHANGED

; CASE: a schedule without producers
; INPUT: chained.ma
; EDIT: input V: => input M: f16[256, 192]\n input V:
; EDIT: %sh = cast %s => %m = ld.global M[i0 * 128 + consumer * 64 + i, t * 64 + j] vec 2 : f16[i: 64, j: 64] #s\n%mf = cast %m : f32[i: 64, j: 64] #s\n%sm = add %s, %mf : f32[i: 64, j: 64] #s\n%sh = cast %sm
; PLAN: {"mapping": {"engine": "warpgroup", "stages": 2, "warp_specialised": false}}
; RUN: stage-loads
; UNCHANGED
