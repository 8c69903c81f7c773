; Copies by threads into a pipeline become TMA loads: one instruction a tile, and waits in front of readers.

; CASE: a pipeline of two operands
; INPUT: copied.ma
; RUN: tma-loads {"tma_loads": true}
; AGAIN
; COMPLETE:
; CHECK: mbar full stages 2 arrivals 1 @ 16384
; CHECK-NOT: cp.async
; CHECK: mbar.expect full[0] 8192
; CHECK-NEXT: tma.load sa[0] swizzle 64, A[i, k] mbar full[0] stream
; CHECK-NEXT: tma.load sb[0] swizzle 64, B[n, 0 * 32 + k] mbar full[0] stream
; CHECK: for t in 0..4
; CHECK: if t {{.*}} {
; CHECK-NEXT: mbar.expect full[(t + 1) % 2] 8192
; CHECK-NEXT: tma.load sa[(t + 1) % 2] swizzle 64, A[i, {{.*}}] mbar full[(t + 1) % 2] stream
; CHECK-NEXT: tma.load sb[(t + 1) % 2]
; CHECK-NEXT: }
; CHECK: barrier
; CHECK-NEXT: mbar.wait full[t % 2] parity t // 2 % 2
; CHECK-NEXT: mma m16n8k16.f16 smem sa[t % 2]
; CHECK-NEXT: barrier

; CASE: the schedule asks for it
; INPUT: copied.ma
; PLAN: {"mapping": {"engine": "warp", "tma_loads": true}}
; RUN: tma-loads
; COMPLETE:
; CHECK-NOT: cp.async
; CHECK: tma.load sa[0]
; CHECK-NOT: cp.async

; CASE: the schedule does not ask for it
; INPUT: copied.ma
; PLAN: {"mapping": {"engine": "warp", "tma_loads": false}}
; RUN: tma-loads
; UNCHANGED

; CASE: without a schedule copies stay
; INPUT: copied.ma
; RUN: tma-loads
; UNCHANGED

; CASE: a target without TMA
; INPUT: copied.ma
; EDIT: sm_90a => sm_90
; RUN: tma-loads {"tma_loads": true}
; UNCHANGED

; CASE: copies stay: one stage
; INPUT: copied.ma
; EDIT: stages 2 => stages 1
; EDIT: % 2] => % 1]
; RUN: tma-loads {"tma_loads": true}
; UNCHANGED

; CASE: copies stay: a site that fills one of two buffers
; INPUT: copied.ma
; EDIT: cp.async sb[(t + 1) % 2] swizzle 64, B[n, (t + 1) * 32 + k] vec 8 threads #cb\n => 
; RUN: tma-loads {"tma_loads": true}
; UNCHANGED

; CASE: copies stay: other stages of the two
; INPUT: copied.ma
; EDIT: sb[(t + 1) % 2] => sb[t % 2]
; RUN: tma-loads {"tma_loads": true}
; UNCHANGED

; CASE: copies stay: no box
; INPUT: copied.ma
; EDIT: A[i, k] vec => A[i, k] where i + k // 8 * 8 < 50 vec
; RUN: tma-loads {"tma_loads": true}
; UNCHANGED

; CASE: copies stay: different depths
; INPUT: copied.ma
; EDIT: smem sb : f16[n: 64, k: 32] stages 2 => smem sb : f16[n: 64, k: 32] stages 3
; RUN: tma-loads {"tma_loads": true}
; UNCHANGED

; CASE: copies stay: rows without a swizzle, with a pitch
; INPUT: copied.ma
; EDIT: swizzle 64 => swizzle 0
; EDIT: pad 0 @ 0 => pad 16 @ 0
; EDIT: pad 0 @ 8192 => pad 0 @ 16384
; RUN: tma-loads {"tma_loads": true}
; UNCHANGED

; CASE: copies stay: an offset that no pattern starts at
; INPUT: copied.ma
; EDIT: pad 0 @ 8192 => pad 0 @ 8256
; RUN: tma-loads {"tma_loads": true}
; UNCHANGED

; CASE: copies stay: threads write to the same bytes
; INPUT: copied.ma
; EDIT: \n    smem sb => \n    smem z : f16[i: 64, n: 64] stages 1 swizzle 0 pad 0 over sa @ 0\n    smem sb
; EDIT: \n    cp.async sa[0] => \n    st.shared z[0], %zh vec 1\n    cp.async sa[0]
; EDIT: \n    st.shared => \n    %zh = const 0.0 : f16[i: 64, n: 64] #acc\n    st.shared
; RUN: tma-loads {"tma_loads": true}
; UNCHANGED
