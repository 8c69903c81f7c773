; The first MMA of an iteration is issued one more iteration ahead, into a second accumulator.

; CASE: two accumulators change places
; INPUT: rescaled_ahead.ma
; RUN: lookahead-mma {"lookahead_mma": true}
; COMPLETE:
; CHECK: tma.load sk[0] swizzle 128, K[j, d]
; CHECK-NEXT: %[[F:.*]] = mma wgmma.f16 smem sq[0] swizzle 128, smem sk[0]
; CHECK-NEXT: tma.load sk[0] swizzle 128, K[j + 64, d]
; CHECK-NEXT: %[[S:.*]] = mma wgmma.f16 smem sq[0] swizzle 128, smem sk[0]
; CHECK-NEXT: mul %[[F]], %scale
; CHECK: for t0 in 1..4 chain c unroll 2 carry(%s_0 = %[[S]], %m_0 =
; CHECK-NEXT: tma.load sk[0] swizzle 128, K[select(t0 < 3, t0 + 1, t0) * 64 + j, d]
; CHECK-NEXT: %[[N:.*]] = mma wgmma.f16 smem sq[0] swizzle 128, smem sk[0]
; CHECK-NEXT: tma.load sv[0] swizzle 128, V[t0 * 64 + j - 64, d]
; CHECK: %on_0 = mma wgmma.f16
; CHECK-NEXT: mul %s_0, %scale
; CHECK: yield %[[N]], %mn_0

; CASE: behind the last iteration of a loop comes the first one of the next loop
; INPUT: rescaled_seams_ahead.ma
; RUN: lookahead-mma {"lookahead_mma": true}
; COMPLETE:
; CHECK: for t0 in b + 1..b + 2 chain c carry(%s_0 =
; CHECK-NEXT: tma.load sk[0] swizzle 128, K[select(t0 <= b, t0 + 1, select(b >= 1, 0, 2)) * 64 + j, d]
; CHECK: for t1 in 0..b chain c carry(%s_1 = %[[E:.*]], %m_1 =
; CHECK-NEXT: tma.load sk[0] swizzle 128, K[select(t1 + 2 <= b, t1 + 1, b + 2) * 64 + j, d]
; CHECK: for t2 in b + 2..4 chain c

; CASE: the schedule does not ask for it
; INPUT: rescaled_ahead.ma
; RUN: lookahead-mma {"lookahead_mma": false}
; UNCHANGED

; CASE: a loop that is not pipelined
; INPUT: rescaled.ma
; RUN: lookahead-mma {"lookahead_mma": true}
; UNCHANGED
