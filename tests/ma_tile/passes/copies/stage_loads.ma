; Tiles that elementwise work in a loop of MMAs reads come by bulk copies.

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

; CASE: rows that no bulk copy loads
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
