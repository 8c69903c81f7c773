; The first MMA of an iteration and the work on its result run one iteration ahead of the second MMA.

; CASE: the first MMA and its work run ahead
; INPUT: rescaled.ma
; RUN: pipeline-mma
; AGAIN
; COMPLETE:
; CHECK: tma.load sq[0]
; CHECK-NEXT: tma.load sk[0] swizzle 128, K[j, d]
; CHECK-NEXT: %[[S:.*]] = mma wgmma.f16 smem sq[0] swizzle 128, smem sk[0]
; CHECK-NEXT: mul %[[S]], %scale
; CHECK-NOT: tma.load
; CHECK: %[[P:.*]] = convert
; CHECK-NEXT: %[[OS:.*]] = mul %o0,
; CHECK-NEXT: for t0 in 1..4 chain c carry(%m_0 = {{.*}}, %[[PB:.*]] = %[[P]], %[[OB:.*]] = %[[OS]]) {
; CHECK-NEXT: tma.load sk[0] swizzle 128, K[t0 * 64 + j, d]
; CHECK-NEXT: %s_0 = mma wgmma.f16 smem sq[0] swizzle 128, smem sk[0]
; CHECK-NEXT: tma.load sv[0] swizzle 128, V[t0 * 64 + j - 64, d]
; CHECK-NEXT: %on_0 = mma wgmma.f16 %[[PB]], smem sv[0] swizzle 128 + %[[OB]] over j
; CHECK-NEXT: mul %s_0, %scale
; CHECK-NOT: tma.load
; CHECK: %p_0 = convert
; CHECK-NEXT: %os_0 = mul %on_0, %a_0
; CHECK-NEXT: yield %mn_0, %ln_0, %p_0, %os_0
; CHECK-NEXT: }
; CHECK-NEXT: tma.load sv[0] swizzle 128, V[j + 192, d]
; CHECK-NEXT: %of0 = mma wgmma.f16
; CHECK-NEXT: %w = div %of0, %lf0

; CASE: a late rescale stands before its MMA
; INPUT: rescaled.ma
; RUN: pipeline-mma {"rescale_placement": "late"}
; COMPLETE:
; CHECK: for t0 in 1..4 chain c carry(%m_0 = {{.*}}, %o_0 = %o0, %[[A:.*]] = {{.*}}, %[[P:.*]] = {{.*}}) {
; CHECK: %s_0 = mma
; CHECK-NEXT: tma.load sv[0]
; CHECK-NEXT: %os_0 = mul %o_0, %[[A]]
; CHECK-NEXT: %on_0 = mma wgmma.f16 %[[P]], smem sv[0] swizzle 128 + %os_0
; CHECK: yield %mn_0, %ln_0, %on_0, %a_0, %p_0
; CHECK: tma.load sv[0]
; CHECK-NEXT: %[[OS:.*]] = mul
; CHECK-NEXT: %of0 = mma wgmma.f16 {{.*}} + %[[OS]] over j

; CASE: the addition of a short sum follows the work on the next result
; INPUT: rescaled.ma
; EDIT: %on_0 = mma wgmma.f16 %p_0, smem sv[0] swizzle 128 + %os_0 over j => %part = mma wgmma.f16 %p_0, smem sv[0] swizzle 128 over j
; EDIT: yield %mn_0, %ln_0, %on_0 => %on_0 = add %os_0, %part : f32[i: 64, d: 64] #o\nyield %mn_0, %ln_0, %on_0
; RUN: pipeline-mma {"rescale_placement": "late"}
; COMPLETE:
; CHECK: for t0 in 1..4
; CHECK: tma.load sv[0]
; CHECK-NEXT: %part = mma
; CHECK-NEXT: mul %s_0, %scale
; CHECK: convert
; CHECK-NEXT: %os_0 = mul
; CHECK-NEXT: %on_0 = add %os_0, %part
; CHECK-NEXT: yield

; CASE: a seam between loops loads for the loop before
; INPUT: rescaled_seams.ma
; RUN: pipeline-mma
; COMPLETE:
; CHECK: index b * 64 + j < 200
; CHECK: for t0 in b + 1..b + 2 chain c
; CHECK: tma.load sv[0] swizzle 128, V[t0 * 64 + j - 64, d]
; CHECK: for t1 in 0..b chain c
; CHECK: tma.load sv[0] swizzle 128, V[select(t1 == 0, b + 1, t1 - 1) * 64 + j, d]
; CHECK: for t2 in b + 2..4 chain c
; CHECK: tma.load sv[0] swizzle 128, V[select(b + 2 == t2, select(b >= 1, 0, 1), t2 - 1) * 64 + j, d]
; CHECK: V[j + 192, d]

; CASE: ranges that adjoin need no choice
; INPUT: rescaled_seams.ma
; EDIT: for t0 in b..b + 2 => for t0 in 0..2
; EDIT: for t1 in 0..b => for t1 in 2..2 + b
; EDIT: for t2 in b + 2..4 => for t2 in 2 + b..4
; RUN: pipeline-mma
; COMPLETE:
; CHECK-NOT: select(
; CHECK: for t2
; CHECK-NOT: select(

; CASE: a loop that loses its only iteration goes
; INPUT: rescaled_seams.ma
; EDIT: for t0 in b..b + 2 => for t0 in b..b + 1
; EDIT: for t2 in b + 2..4 => for t2 in b + 1..4
; RUN: pipeline-mma
; COMPLETE:
; CHECK-NOT: for t0 
; CHECK: for t1 in 0..b
; CHECK-NOT: for t0 

; CASE: every MMA but the first level is one stage
; INPUT: backward.ma
; RUN: pipeline-mma
; COMPLETE:
; CHECK: for t in 1..4
; CHECK: %s = mma wgmma.f16 smem sq[0]
; CHECK: %g = mma wgmma.f16 smem sg[0]
; CHECK: %dn = mma wgmma.f16 %yp_before
; CHECK: %u = mma wgmma.f16 %xp_before
; CHECK: %rn = mma wgmma.f16 %vp
; CHECK-NEXT: %x = tanh %s
; CHECK: yield %dn, %rn, %yp, %xp
; CHECK: %df = mma
; CHECK: %rf = mma

; CASE: the schedule does not ask for it
; INPUT: rescaled.ma
; PLAN: {"mapping": {"engine": "warpgroup", "pipeline_mma": false}}
; RUN: pipeline-mma
; UNCHANGED

; CASE: the schedule asks for a late rescale
; INPUT: rescaled.ma
; PLAN: {"mapping": {"engine": "warpgroup", "rescale_placement": "late"}}
; RUN: pipeline-mma
; COMPLETE:
; CHECK: %s_0 = mma
; CHECK-NEXT: tma.load sv[0]
; CHECK-NEXT: %os_0 = mul %o_0,
; CHECK-NEXT: %on_0 = mma

; CASE: one level of MMAs
; INPUT: product.ma
; RUN: pipeline-mma
; UNCHANGED

; CASE: a first loop of two that may not run
; INPUT: rescaled_two_loops.ma
; EDIT: for t0 in 0..1 => for t0 in 0..b
; EDIT: for t1 in 1..4 => for t1 in b..4
; RUN: pipeline-mma
; COMPLETE:
; CHECK: for once in 0..select(b >= 1, 1, 0) carry(
; CHECK-NOT: for t0
; CHECK: for t1 in b..4
; CHECK: %[[O:.*]] = mma wgmma.f16 %p_1_last
; CHECK-NEXT: yield %{{.*}}, %[[O]]
; CHECK: for once2 in 0..select(b < 1, 1, 0) carry(
; CHECK: tma.load sk[0] swizzle 128, K[b * 64 + j, d]
; CHECK: for t12 in b + 1..4
; CHECK: %w = div

; CASE: the only loop may not run
; INPUT: rescaled.ma
; EDIT: for t0 in 0..4 => for t0 in 0..b
; RUN: pipeline-mma
; COMPLETE:
; CHECK: for once in 0..select(b >= 1, 1, 0) carry(
; CHECK: tma.load sk[0]
; CHECK-NOT: for t0
; CHECK: tma.load sv[0] swizzle 128, V[b * 64 + j - 64, d]

; CASE: two loops that are alike
; INPUT: rescaled_two_loops.ma
; RUN: pipeline-mma
; COMPLETE:
; CHECK-NOT: for t0 
; CHECK: for t1 in 1..4

; CASE: a second stage that differs between the loops
; INPUT: rescaled_two_loops.ma
; EDIT: V[t1 * 64 + j, d] => K[t1 * 64 + j, d]
; RUN: pipeline-mma
; UNCHANGED

; CASE: a buffer of both stages
; INPUT: rescaled.ma
; EDIT: tma.load sv[0] => tma.load sk[0]
; EDIT: smem sv[0] => smem sk[0]
; RUN: pipeline-mma
; UNCHANGED

; CASE: work beside the first MMA may use the accumulator
; INPUT: rescaled.ma
; EDIT: %s_0 = mma => %z = mul %o_0, %scale : f32[i: 64, d: 64] #o\n%s_0 = mma
; RUN: pipeline-mma
; CHECK: for t0 in 1..4

; CASE: a first MMA that needs the accumulator of the second
; INPUT: rescaled.ma
; EDIT: smem sq : => layout #pd = reg(d:2x1, i:2x8, d:2x8, d:4x16, i:1x64) lane(d:4x2, i:8x1) warp(i:4x16)\nsmem sq :
; EDIT: %s_0 = mma wgmma.f16 smem sq[0] swizzle 128 => %zh = narrow %o_0 : f16[i: 64, d: 64] #o\n%zq = convert %zh : f16[i: 64, d: 64] #pd\n%s_0 = mma wgmma.f16 %zq
; RUN: pipeline-mma
; UNCHANGED

; CASE: a barrier in the loop
; INPUT: rescaled.ma
; EDIT: %s_0 = mma => barrier\n%s_0 = mma
; RUN: pipeline-mma
; UNCHANGED

; CASE: a result that is read between the loops
; INPUT: rescaled_two_loops.ma
; EDIT: %mf1, %lf1, %of1 = for => %w0 = neg %of0 : f32[i: 64, d: 64] #o\n%mf1, %lf1, %of1 = for
; EDIT: %w = div %of1 => %w1 = add %of1, %w0 : f32[i: 64, d: 64] #o\n%w = div %w1
; RUN: pipeline-mma
; UNCHANGED

; CASE: a second loop that goes on with another result of the first one
; INPUT: rescaled_two_loops.ma
; EDIT: %l_1 = %lf0 => %l_1 = %mf0
; RUN: pipeline-mma
; UNCHANGED
