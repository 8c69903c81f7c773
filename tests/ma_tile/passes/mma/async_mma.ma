; MMAs of warpgroups are issued asynchronously: where fences, waits and releases stand, and which loops keep MMAs
; outstanding.

; CASE: waits are late and releases follow them
; INPUT: rescaled.ma
; FIRST: pipeline-mma
; FIRST: specialise-warps
; RUN: async-mma
; AGAIN
; COMPLETE: allocate-shared, synchronize
; CHECK: role consumers
; CHECK: for t0 in 1..4
; CHECK-NEXT: mbar.wait full_sk[sk_stage] parity sk_phase
; CHECK-NEXT: wg.fence
; CHECK-NEXT: %s_0 = mma wgmma.f16 {{.*}} async
; CHECK-NEXT: wg.commit
; CHECK-NEXT: mbar.wait full_sv[sv_stage] parity sv_phase
; CHECK-NEXT: wg.fence
; CHECK-NEXT: %on_0 = mma wgmma.f16 {{.*}} async
; CHECK-NEXT: wg.commit
; CHECK-NEXT: wg.wait 1 %s_0
; CHECK-NEXT: mbar.arrive empty_sk[sk_stage] each warp
; CHECK-NEXT: advance sk
; CHECK-NEXT: %x0_0 = mul %s_0
; CHECK-NOT: wg.wait
; CHECK: exp2
; CHECK-NOT: wg.wait
; CHECK: %ln_0 = add
; CHECK-NEXT: wg.wait 0 %on_0
; CHECK-NEXT: mbar.arrive empty_sv[sv_stage] each warp
; CHECK-NEXT: advance sv
; CHECK-NEXT: %h_0 = narrow
; CHECK: %os_0 = mul %on_0
; CHECK-NEXT: yield
; CHECK: %of0 = mma
; CHECK-NEXT: wg.commit
; CHECK-NEXT: wg.wait 0 %of0
; CHECK-NEXT: mbar.arrive empty_sv[sv_stage]

; CASE: work on an accumulator between MMAs is fenced
; INPUT: rescaled.ma
; FIRST: pipeline-mma {"rescale_placement": "late"}
; FIRST: specialise-warps
; RUN: async-mma
; COMPLETE: allocate-shared, synchronize
; CHECK: role consumers
; CHECK: for t0 in 1..4
; CHECK: %s_0 = mma {{.*}} async
; CHECK-NEXT: wg.commit
; CHECK-NEXT: %os_0 = mul %o_0
; CHECK-NEXT: mbar.wait full_sv
; CHECK-NEXT: wg.fence
; CHECK-NEXT: %on_0 = mma {{.*}} + %os_0 over j async
; CHECK: wg.wait 0 %on_0
; CHECK: yield

; CASE: without a pipeline of MMAs each result is waited for
; INPUT: rescaled.ma
; FIRST: specialise-warps
; RUN: async-mma
; COMPLETE: allocate-shared, synchronize
; CHECK: wg.wait 0 %s_0
; CHECK: wg.wait 0 %on_0
; CHECK-NOT: wg.wait

; CASE: volatile waits
; INPUT: rescaled.ma
; FIRST: pipeline-mma
; FIRST: specialise-warps
; RUN: async-mma {"volatile_waits": true}
; COMPLETE: allocate-shared, synchronize
; CHECK-COUNT-4: wg.wait {{[01]}} volatile
; CHECK-NOT: wg.wait

; CASE: a load waits for who reads the stage
; Nobody reads the result yet, but the next load overwrites the operand.
; INPUT: rescaled.ma
; EDIT: %x0_0 = mul %s_0, %scale => tma.load sk[0] swizzle 128, K[j, d]\n%x0_0 = mul %s_0, %scale
; RUN: async-mma
; COMPLETE: synchronize, await-copies
; CHECK: %s_0 = mma {{.*}} async
; CHECK-NEXT: wg.commit
; CHECK-NEXT: wg.wait 0 %s_0
; CHECK-NEXT: tma.load sk[0]

; CASE: a barrier waits where this code writes the operand
; INPUT: rescaled.ma
; EDIT: %x0_0 = mul %s_0 => barrier\n%x0_0 = mul %s_0
; RUN: async-mma
; COMPLETE: synchronize, await-copies
; CHECK: wg.wait 0 %s_0
; CHECK-NEXT: barrier
; CHECK-NEXT: mul %s_0

; CASE: a TMA load of another operand does not wait
; INPUT: rescaled.ma
; FIRST: pipeline-mma
; RUN: async-mma
; COMPLETE: synchronize, await-copies
; CHECK: for t0 in 1..4
; CHECK: wg.commit
; CHECK-NEXT: tma.load sv
; CHECK: wg.wait 1 %s_0
; CHECK: mul %s_0

; CASE: shared memory counts as a barrier where threads store the operand
; synchronize may put a barrier in front of the second load, when all consumers have to be done with sk.
; INPUT: rescaled.ma
; EDIT: smem sq : => layout #kd = reg(d:2x1, d:8x8, j:4x16) lane(d:4x2, j:8x1) warp(j:2x8, *:2)\nsmem sq :
; EDIT: %scale = const => %zk = const 0.0 : f16[j: 64, d: 64] #kd\n%scale = const
; EDIT: tma.load sk[0] swizzle 128, K[t0 * 64 + j, d] => st.shared sk[0] swizzle 128, %zk vec 2
; FIRST: pipeline-mma
; RUN: async-mma
; CHECK: for t0 in 1..4
; CHECK: wg.commit
; CHECK-NEXT: wg.wait 0 %s_0
; CHECK: tma.load sv
; CHECK: mul %s_0

; CASE: an accumulator that is used again is not updated in place
; INPUT: rescaled.ma
; EDIT: %on_0 = mma => %old = neg %os_0 : f32[i: 64, d: 64] #o\n%on_0 = mma
; RUN: async-mma
; COMPLETE: synchronize, await-copies
; CHECK: %s_0 = mma {{.*}} async
; CHECK: %os_0 = mul
; CHECK-NEXT: %old = neg %os_0
; CHECK: %os_0_copy = convert %os_0 copy : f32[i: 64, d: 64] #o
; CHECK-NEXT: wg.fence
; CHECK-NEXT: %on_0 = mma {{.*}} + %os_0_copy over j async
; CHECK-NEXT: wg.commit
; CHECK-NEXT: wg.wait 0 %on_0

; CASE: an accumulator of every iteration is copied in each
; INPUT: rescaled.ma
; EDIT: + %os_0 over j => + %o0 over j
; RUN: async-mma
; COMPLETE: synchronize, await-copies
; CHECK: for t0
; CHECK: %[[C:o0_copy[_0-9]*]] = convert %o0 copy
; CHECK-NEXT: wg.fence
; CHECK-NEXT: %on_0 = mma {{.*}} + %[[C]] over j async

; CASE: asynchronous MMAs stay as they are
; INPUT: rescaled.ma
; FIRST: async-mma
; RUN: async-mma
; UNCHANGED

; CASE: an epilogue through an operand costs no overlap
; INPUT: rescaled.ma
; EDIT: output O: f32 => output O: f16
; PLAN: {"mapping": {"engine": "warpgroup", "epilogue": "tma-aliased"}}
; FIRST: tma-stores
; FIRST: pipeline-mma
; FIRST: specialise-warps
; RUN: async-mma
; COMPLETE: allocate-shared, synchronize
; CHECK: wg.wait 1 %s_0
; CHECK: st.matrix sq

; CASE: a state that is needed again advances at once
; Both operands come through one pipeline of two stages.
; INPUT: rescaled_one_pipeline.ma
; RUN: async-mma
; COMPLETE: allocate-shared, synchronize
; CHECK: role consumers
; CHECK: for t0 in 1..4
; CHECK: %s_0 = mma {{.*}} async
; CHECK-NEXT: wg.commit
; CHECK-NEXT: let [[L:[a-z_0-9]*]] = kv_stage
; CHECK-NEXT: advance kv
; CHECK-NEXT: mbar.wait full_kv[kv_stage] parity kv_phase
; CHECK: %on_0 = mma {{.*}} async
; CHECK: wg.wait 1 %s_0
; CHECK-NEXT: mbar.arrive empty_kv[[[L]]] each warp
; CHECK-NEXT: mul %s_0
; CHECK: wg.wait 0 %on_0
; CHECK-NEXT: mbar.arrive empty_kv[kv_stage] each warp
; CHECK-NEXT: advance kv

; CASE: a pipeline of one stage is released before its next wait
; INPUT: rescaled_one_pipeline.ma
; EDIT: _kv stages 2 => _kv stages 1
; EDIT: pipeline kv stages 2 => pipeline kv stages 1
; EDIT: smem sk : f16[j: 64, d: 64] stages 2 => smem sk : f16[j: 64, d: 64] stages 1
; EDIT: smem sv : f16[j: 64, d: 64] stages 2 => smem sv : f16[j: 64, d: 64] stages 1
; RUN: async-mma
; COMPLETE: allocate-shared, synchronize
; CHECK: role consumers
; CHECK: for t0 in 1..4
; CHECK: %s_0 = mma {{.*}} async
; CHECK-NEXT: wg.commit
; CHECK-NEXT: wg.wait 0 %s_0
; CHECK-NEXT: mbar.arrive empty_kv[kv_stage] each warp
; CHECK-NEXT: advance kv
; CHECK-NEXT: mbar.wait full_kv[kv_stage]

; CASE: an accumulating loop keeps a group outstanding
; INPUT: product.ma
; PLAN: {"mapping": {"engine": "warpgroup", "stages": 3}}
; FIRST: specialise-warps
; RUN: async-mma
; AGAIN
; COMPLETE: allocate-shared, synchronize
; CHECK: pipeline a_b stages 3
; CHECK-NEXT: pipeline a_b_done stages 3
; CHECK-NOT: pipeline
; CHECK: role consumers
; CHECK: for t in 0..3
; CHECK-NEXT: mbar.wait full_a_b[a_b_stage] parity a_b_phase
; CHECK-NEXT: wg.fence
; CHECK-NEXT: %next = mma {{.*}} + %acc over k async
; CHECK-NEXT: wg.commit
; CHECK-NEXT: advance a_b
; CHECK-NEXT: wg.wait 1
; CHECK-NEXT: if t >= 1 {
; CHECK-NEXT: mbar.arrive empty_a_b[a_b_done_stage] each warp
; CHECK-NEXT: advance a_b_done
; CHECK-NEXT: }
; CHECK-NEXT: yield %next
; CHECK-NEXT: }
; CHECK-NEXT: wg.wait 0 %c
; CHECK-NEXT: mbar.arrive empty_a_b[a_b_done_stage] each warp
; CHECK-NEXT: advance a_b_done
; CHECK-NEXT: st.global

; CASE: a loop that may not run releases nothing then
; INPUT: product.ma
; EDIT: for t in 0..3 => for t in 0..i0 * 3
; PLAN: {"mapping": {"engine": "warpgroup", "stages": 3}}
; FIRST: specialise-warps
; RUN: async-mma
; COMPLETE: allocate-shared, synchronize
; CHECK: wg.wait 1
; CHECK: wg.wait 0 %c
; CHECK: if i0{{.*}} >= 1 {
; CHECK-NEXT: mbar.arrive empty_a_b[a_b_done_stage] each warp

; CASE: a loop of one iteration at most leaves no group outstanding
; INPUT: product.ma
; EDIT: for t in 0..3 => for t in 0..i0
; PLAN: {"mapping": {"engine": "warpgroup", "stages": 3}}
; FIRST: specialise-warps
; RUN: async-mma
; COMPLETE: allocate-shared, synchronize
; CHECK: role consumers
; CHECK: wg.commit
; CHECK-NEXT: advance a_b
; CHECK-NEXT: yield %next
; CHECK-NEXT: }
; CHECK-NEXT: wg.wait 0 %c
; CHECK-NEXT: if i0 >= 1 {
; CHECK-NEXT: mbar.arrive empty_a_b[a_b_done_stage] each warp

; CASE: MMAs that add to one another are one group
; INPUT: product.ma
; EDIT: %next = mma wgmma.f16 smem a[consumer] swizzle 128, smem b[0] swizzle 128 + %acc => %half = mma wgmma.f16 smem a[consumer] swizzle 128, smem b[0] swizzle 128 + %acc over k : f32[i: 64, j: 64] #acc\n      %next = mma wgmma.f16 smem a[consumer] swizzle 128, smem b[0] swizzle 128 + %half
; PLAN: {"mapping": {"engine": "warpgroup", "stages": 3, "outstanding_mma": false}}
; FIRST: specialise-warps
; RUN: async-mma
; AGAIN
; COMPLETE: allocate-shared, synchronize
; CHECK: role consumers
; CHECK: wg.fence
; CHECK-NEXT: %half = mma {{.*}} + %acc over k async
; CHECK-NEXT: %next = mma {{.*}} + %half over k async
; CHECK-NEXT: wg.commit
; CHECK-NEXT: wg.wait 0 %next
; CHECK-NOT: wg.fence

; CASE: the state of releases advances with the tiles of other consumers
; INPUT: product_one_consumer.ma
; PLAN: {"mapping": {"engine": "warpgroup", "stages": 3, "persistent": "static", "tile_scheduling": "pingpong"}}
; FIRST: specialise-warps
; RUN: async-mma
; RUN: persistent-grid {"multiprocessors": 3}
; CHECK: advance a_b by 3
; CHECK: advance a_b_done by 3

; CASE: the schedule asks for no outstanding MMAs
; INPUT: product.ma
; PLAN: {"mapping": {"engine": "warpgroup", "stages": 3, "outstanding_mma": false}}
; FIRST: specialise-warps
; RUN: async-mma
; COMPLETE: allocate-shared, synchronize
; CHECK-NOT: wg.wait 1
; CHECK: wg.wait 0 %next
; CHECK-NOT: wg.wait

; CASE: one stage leaves none outstanding
; INPUT: product.ma
; PLAN: {"mapping": {"engine": "warpgroup", "stages": 1}}
; FIRST: specialise-warps
; RUN: async-mma
; COMPLETE: allocate-shared, synchronize
; CHECK-NOT: wg.wait 1
; CHECK: wg.wait 0 %next
; CHECK-NOT: wg.wait

; CASE: a result that the iteration reads leaves none outstanding
; INPUT: product.ma
; EDIT: yield %next => %more = neg %next : f32[i: 64, j: 64] #acc\nyield %more
; PLAN: {"mapping": {"engine": "warpgroup", "stages": 3}}
; FIRST: specialise-warps
; RUN: async-mma
; COMPLETE: allocate-shared, synchronize
; CHECK-NOT: wg.wait 1
; CHECK: wg.wait 0 %next
; CHECK-NOT: wg.wait
