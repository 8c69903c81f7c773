; Fragments of the next k-step are read while the current one is multiplied, across iterations as well.

; CASE: one MMA of four k-steps
; INPUT: pipelined.ma
; ARCH: sm_80
; RUN: double-buffer-fragments {"double_buffer_fragments": true}
; RUN: allocate-shared
; RUN: synchronize
; COMPLETE: allocate-shared, synchronize
; CHECK: cp.async s_at[0]
; CHECK: cp.commit
; CHECK: cp.async s_at[1]
; CHECK: cp.commit
; CHECK-NEXT: cp.wait 1
; CHECK-NEXT: barrier
; CHECK-NEXT: %[[A0:.*]] = ld.matrix s_at[0] swizzle 128 at k 0 : f16[i: 32, k: 16] #step_i
; CHECK-NEXT: %[[B0:.*]] = ld.matrix s_bt[0] swizzle 64 at k 0 : f16[j: 32, k: 16] #step_j
; CHECK-NEXT: for k0 in 0..2 carry(%ci = %zero, %{{.*}} = %[[A0]], %{{.*}} = %[[B0]]) {
; CHECK-NEXT: ld.matrix s_at[k0 % 3] swizzle 128 at k 16
; CHECK-NEXT: ld.matrix s_bt[k0 % 3] swizzle 64 at k 16
; CHECK-NEXT: mma m16n8k16.f16
; CHECK-NEXT: if k0 < 1 {
; CHECK-NEXT: cp.async s_at[(k0 + 2) % 3]
; CHECK-NEXT: cp.async s_bt[(k0 + 2) % 3]
; CHECK-NEXT: }
; CHECK-NEXT: cp.commit
; CHECK-NEXT: ld.matrix s_at[k0 % 3] swizzle 128 at k 32
; CHECK-NEXT: ld.matrix s_bt[k0 % 3] swizzle 64 at k 32
; CHECK-NEXT: mma m16n8k16.f16
; CHECK-NEXT: %[[A3:.*]] = ld.matrix s_at[k0 % 3] swizzle 128 at k 48
; CHECK-NEXT: %[[B3:.*]] = ld.matrix s_bt[k0 % 3] swizzle 64 at k 48
; CHECK-NEXT: mma m16n8k16.f16
; CHECK-NEXT: cp.wait 1
; CHECK-NEXT: barrier
; CHECK-NEXT: %[[A4:.*]] = ld.matrix s_at[(k0 + 1) % 3] swizzle 128 at k 0
; CHECK-NEXT: %[[B4:.*]] = ld.matrix s_bt[(k0 + 1) % 3] swizzle 64 at k 0
; CHECK-NEXT: %[[C:.*]] = mma m16n8k16.f16 %[[A3]], %[[B3]] + %{{.*}} over k
; CHECK-NEXT: yield %[[C]], %[[A4]], %[[B4]]
; CHECK: ld.matrix s_at[2] swizzle 128 at k 48
; CHECK-NOT: barrier
; CHECK: %c = mma

; CASE: MMAs that share an operand share its fragments
; INPUT: pipelined_gated.ma
; ARCH: sm_80
; RUN: double-buffer-fragments {"double_buffer_fragments": true}
; RUN: allocate-shared
; RUN: synchronize
; COMPLETE: allocate-shared, synchronize
; CHECK: for k0 in 0..3
; CHECK-NEXT: ld.matrix s_x[k0 % 3] {{.*}} at k 16
; CHECK-NEXT: ld.matrix s_p[k0 % 3] {{.*}} at k 16
; CHECK-NEXT: ld.matrix s_q[k0 % 3] {{.*}} at k 16
; CHECK-NEXT: mma m16n8k16.f16 %[[X:.*]], %{{.*}} + %ui
; CHECK-NEXT: mma m16n8k16.f16 %[[X]], %{{.*}} + %vi
; CHECK: cp.wait 1
; CHECK-NEXT: barrier
; CHECK-NEXT: ld.matrix s_x[(k0 + 1) % 3] {{.*}} at k 0
; CHECK-COUNT-2: mma
; CHECK-NEXT: yield

; CASE: a copy into the stage that is read
; INPUT: pipelined.ma
; ARCH: sm_80
; EDIT: %cn = mma m16n8k16.f16 smem s_at[k0 % 3] swizzle 128, smem s_bt[k0 % 3] swizzle 64 + %ci over k : f32[i: 32, j: 32] #acc_i_j =>
; EDIT: if k0 < 1 { => %cn = mma m16n8k16.f16 smem s_at[k0 % 3] swizzle 128, smem s_bt[k0 % 3] swizzle 64 + %ci over k : f32[i: 32, j: 32] #acc_i_j\nif k0 < 1 {
; EDIT: [(k0 + 2) % 3] => [k0 % 3]
; RUN: double-buffer-fragments {"double_buffer_fragments": true}
; UNCHANGED

; CASE: copies after the MMA into another stage
; INPUT: pipelined.ma
; ARCH: sm_80
; EDIT: %cn = mma m16n8k16.f16 smem s_at[k0 % 3] swizzle 128, smem s_bt[k0 % 3] swizzle 64 + %ci over k : f32[i: 32, j: 32] #acc_i_j =>
; EDIT: if k0 < 1 { => %cn = mma m16n8k16.f16 smem s_at[k0 % 3] swizzle 128, smem s_bt[k0 % 3] swizzle 64 + %ci over k : f32[i: 32, j: 32] #acc_i_j\nif k0 < 1 {
; RUN: double-buffer-fragments {"double_buffer_fragments": true}
; COMPLETE: allocate-shared, synchronize
; CHECK: ld.matrix s_at[(k0 + 1) % 3] swizzle 128 at k 0

; CASE: one pipeline that is read at two stages
; INPUT: pipelined_gated.ma
; ARCH: sm_80
; EDIT: %vn = mma m16n8k16.f16 smem s_x[k0 % 3] => %vn = mma m16n8k16.f16 smem s_x[(k0 + 1) % 3]
; RUN: double-buffer-fragments {"double_buffer_fragments": true}
; UNCHANGED

; CASE: the schedule asks for it
; INPUT: pipelined.ma
; ARCH: sm_80
; PLAN: {"mapping": {"engine": "warp", "double_buffer_fragments": true}}
; RUN: double-buffer-fragments
; COMPLETE: allocate-shared, synchronize
; CHECK: for k0 in 0..2
; CHECK: ld.matrix s_at[(k0 + 1) % 3]

; CASE: the schedule does not ask for it
; INPUT: pipelined.ma
; ARCH: sm_80
; PLAN: {"mapping": {"engine": "warp", "double_buffer_fragments": false}}
; RUN: double-buffer-fragments
; UNCHANGED

; CASE: copies that the last iteration has too
; INPUT: pipelined.ma
; ARCH: sm_80
; EDIT: if k0 < 1 { => if k0 < 3 {
; RUN: double-buffer-fragments {"double_buffer_fragments": true}
; CHECK: if k0 < 3 {
; CHECK: cp.async s_at[1]
; CHECK: cp.async s_bt[1]
