; Left operands that loops do not change are read into registers once.

; CASE: one read in front of a chain of loops
; INPUT: rescaled_two_loops.ma
; RUN: register-operands {"register_operands": true}
; COMPLETE:
; CHECK: layout #[[A:.*]] = reg(d:2x1, i:2x8, d:2x8, d:4x16, i:1x64) lane(d:4x2, i:8x1) warp(i:4x16)
; CHECK: tma.load sq[0]
; CHECK-NEXT: %[[Q:.*]] = ld.matrix sq[0] swizzle 128 at d 0 : f16[i: 64, d: 64] #[[A]]
; CHECK-NEXT: for t0 in 0..1
; CHECK: %s_0 = mma wgmma.f16 %[[Q]], smem sk[0]
; CHECK: for t1 in 1..4
; CHECK: %s_1 = mma wgmma.f16 %[[Q]], smem sk[0]
; CHECK-NOT: sq[0]

; CASE: the stage is given back in front of the loop
; INPUT: chained.ma
; PLAN: {"mapping": {"engine": "warpgroup", "stages": 2}}
; RUN: register-operands {"register_operands": true}
; RUN: specialise-warps
; COMPLETE: allocate-shared, synchronize, await-copies
; CHECK: role consumers
; CHECK: mbar.wait full_q
; CHECK: ld.matrix q[q_stage * 2 + consumer]
; CHECK: mbar.arrive empty_q
; CHECK: for t in 0..3

; CASE: the schedule does not ask for it
; INPUT: rescaled.ma
; PLAN: {"mapping": {"engine": "warpgroup"}}
; RUN: register-operands
; UNCHANGED

; CASE: the schedule asks for it
; INPUT: rescaled.ma
; PLAN: {"mapping": {"engine": "warpgroup", "register_operands": true}}
; RUN: register-operands
; COMPLETE:
; CHECK: %[[Q:.*]] = ld.matrix sq[0] swizzle 128 at d 0
; CHECK-NEXT: for t0
; CHECK: %s_0 = mma wgmma.f16 %[[Q]], smem sk[0]
; CHECK-NOT: sq[0]

; CASE: an operand that is loaded in every iteration stays
; INPUT: product.ma
; RUN: register-operands {"register_operands": true}
; UNCHANGED

; CASE: an operand that is loaded again between the loops of a chain stays
; INPUT: rescaled_two_loops.ma
; EDIT: %mf1, %lf1, %of1 = for => tma.load sq[0] swizzle 128, Q[b * 64 + i, d]\n%mf1, %lf1, %of1 = for
; RUN: register-operands {"register_operands": true}
; UNCHANGED

; CASE: another stage in every iteration stays
; INPUT: rescaled.ma
; EDIT: stages 1 swizzle 128 pad 0 @ 0 => stages 2 swizzle 128 pad 0 @ 32768
; EDIT: smem sq[0] => smem sq[t0 % 2]
; RUN: register-operands {"register_operands": true}
; UNCHANGED

; CASE: a buffer that is not loaded in front of the loop stays
; INPUT: rescaled.ma
; EDIT: tma.load sq[0] swizzle 128, Q[b * 64 + i, d] => let c = 0
; RUN: register-operands {"register_operands": true}
; UNCHANGED

; CASE: elements of 32 bits stay, because ldmatrix moves 16
; RUN: register-operands {"register_operands": true}
; UNCHANGED
module wide target sm_90a {
  input A: tf32[64, 32]
  input B: tf32[128, 32]
  output C: f32[64, 64]
  kernel wide grid 1 warps 4 min_blocks 1 {
    layout #acc = reg(n:2x1, i:2x8, n:8x8, i:1x64) lane(n:4x2, i:8x1) warp(i:4x16)
    smem sa : tf32[i: 64, k: 32] stages 1 swizzle 128 pad 0 @ 0
    smem sb : tf32[n: 64, k: 32] stages 1 swizzle 128 pad 0 @ 8192
    %zero = const 0.0 : f32[i: 64, n: 64] #acc
    tma.load sa[0] swizzle 128, A[i, k]
    %c = for t in 0..2 carry(%acc = %zero) {
      tma.load sb[0] swizzle 128, B[t * 64 + n, k]
      %next = mma wgmma.tf32 smem sa[0] swizzle 128, smem sb[0] swizzle 128 + %acc over k : f32[i: 64, n: 64] #acc
      yield %next
    }
    st.global C[i, n], %c vec 2
  }
}

; CASE: elements of 16 bits of the same program do not stay
; RUN: register-operands {"register_operands": true}
; COMPLETE:
module narrow target sm_90a {
  input A: f16[64, 64]
  input B: f16[128, 64]
  output C: f32[64, 64]
  kernel narrow grid 1 warps 4 min_blocks 1 {
    layout #acc = reg(n:2x1, i:2x8, n:8x8, i:1x64) lane(n:4x2, i:8x1) warp(i:4x16)
    smem sa : f16[i: 64, k: 64] stages 1 swizzle 128 pad 0 @ 0
    smem sb : f16[n: 64, k: 64] stages 1 swizzle 128 pad 0 @ 8192
    %zero = const 0.0 : f32[i: 64, n: 64] #acc
    tma.load sa[0] swizzle 128, A[i, k]
    %c = for t in 0..2 carry(%acc = %zero) {
      tma.load sb[0] swizzle 128, B[t * 64 + n, k]
      %next = mma wgmma.f16 smem sa[0] swizzle 128, smem sb[0] swizzle 128 + %acc over k : f32[i: 64, n: 64] #acc
      yield %next
    }
    st.global C[i, n], %c vec 2
  }
}
; CHECK: %[[A:.*]] = ld.matrix sa[0] swizzle 128 at k 0
; CHECK-NEXT: for t
; CHECK: mma wgmma.f16 %[[A]], smem sb[0]

; CASE: rows of several MMAs stay, because a warp has them apart
; RUN: register-operands {"register_operands": true}
; UNCHANGED
module wide target sm_90a {
  input A: f16[128, 64]
  input B: f16[128, 64]
  output C: f32[128, 64]
  kernel wide grid 1 warps 4 min_blocks 1 {
    layout #acc = reg(n:2x1, i:2x8, n:8x8, i:2x64) lane(n:4x2, i:8x1) warp(i:4x16)
    smem sa : f16[i: 128, k: 64] stages 1 swizzle 128 pad 0 @ 0
    smem sb : f16[n: 64, k: 64] stages 1 swizzle 128 pad 0 @ 16384
    %zero = const 0.0 : f32[i: 128, n: 64] #acc
    tma.load sa[0] swizzle 128, A[i, k]
    %c = for t in 0..2 carry(%acc = %zero) {
      tma.load sb[0] swizzle 128, B[t * 64 + n, k]
      %next = mma wgmma.f16 smem sa[0] swizzle 128, smem sb[0] swizzle 128 + %acc over k : f32[i: 128, n: 64] #acc
      yield %next
    }
    st.global C[i, n], %c vec 2
  }
}

; CASE: beside an operand made in the same iteration it is refused
; ptxas would give both operands the same registers.
; INPUT: rescaled.ma
; PLAN: {"mapping": {"engine": "warpgroup", "register_operands": true, "pipeline_mma": false}}
; RUN: register-operands
; UNCHANGED

; CASE: beside an operand carried from the iteration before it is not refused
; INPUT: rescaled.ma
; PLAN: {"mapping": {"engine": "warpgroup", "register_operands": true, "pipeline_mma": true}}
; RUN: register-operands
; COMPLETE:
; CHECK: ld.matrix sq[0]

; CASE: the only left operand in registers is not refused
; INPUT: rescaled.ma
; EDIT: mma wgmma.f16 %p_0, smem sv[0] swizzle 128 + %os_0 over j => neg %o_0
; PLAN: {"mapping": {"engine": "warpgroup", "register_operands": true, "pipeline_mma": false}}
; RUN: register-operands
; COMPLETE:
; CHECK: ld.matrix sq[0]

; CASE: an operand that threads write in each iteration stays
; INPUT: rescaled.ma
; EDIT: %scale = const => %zq = const 0.0 : f16[i: 64, d: 64] #o\n%scale = const
; EDIT: %s_0 = mma => st.shared sq[0] swizzle 128, %zq vec 2\n%s_0 = mma
; RUN: register-operands {"register_operands": true}
; UNCHANGED
