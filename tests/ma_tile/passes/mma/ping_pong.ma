; Ordered barriers around the MMAs of an iteration: where they begin and end.

; CASE: consumers that share tiles pass an ordered barrier in each iteration
; INPUT: chained_ahead.ma
; PLAN: {"mapping": {"engine": "warpgroup", "ordered_mma": true}}
; FIRST: specialise-warps
; FIRST: persistent-grid {"multiprocessors": 1}
; RUN: ping-pong
; AGAIN
; COMPLETE: allocate-shared, synchronize
; CHECK: role producer
; CHECK-NOT: barrier
; CHECK: role consumers
; CHECK-NEXT: if consumer == 1 {
; CHECK-NEXT: named.arrive 4, 256
; CHECK: %s0 = mma
; CHECK-NOT: barrier
; CHECK: for t in 0..3 - 1
; CHECK: mbar.wait full_k
; CHECK-NEXT: barrier (4 + consumer), 256
; CHECK-NEXT: %sn = mma
; CHECK-NOT: barrier
; CHECK: %next = mma
; CHECK-NEXT: named.arrive (4 + (consumer + 1) % 2), 256
; CHECK-NOT: barrier
; CHECK-NOT: named.arrive
; CHECK: yield
; CHECK: %o = mma
; CHECK-NOT: barrier
; CHECK: st.global
; CHECK-NOT: barrier

; CASE: the fence before and the commit after stand inside
; INPUT: product.ma
; FIRST: specialise-warps
; FIRST: async-mma {"outstanding_mma": false}
; RUN: ping-pong {"ordered_mma": true}
; COMPLETE: allocate-shared, synchronize
; CHECK: barrier (4 + consumer), 256
; CHECK-NEXT: wg.fence
; CHECK-NEXT: %next = mma
; CHECK-NEXT: wg.commit
; CHECK-NEXT: named.arrive (4 + (consumer + 1) % 2), 256
; CHECK-NEXT: wg.wait 0 %next

; CASE: three consumers pass the barrier on in a cycle
; INPUT: product_three_consumers.ma
; PLAN: {"mapping": {"engine": "warpgroup", "ordered_mma": true, "producer_registers": 32, "consumer_registers": 160}}
; FIRST: specialise-warps
; RUN: ping-pong
; COMPLETE: allocate-shared, synchronize
; CHECK: if consumer == 2 {
; CHECK-NEXT: named.arrive 4, 256
; CHECK: barrier (4 + consumer), 256
; CHECK: named.arrive (4 + (consumer + 1) % 3), 256
; CHECK-NOT: if consumer == 0

; CASE: pingpong tile scheduling orders the MMAs already
; INPUT: product_one_consumer.ma
; PLAN: {"mapping": {"engine": "warpgroup", "ordered_mma": true, "persistent": "static", "tile_scheduling": "pingpong"}}
; FIRST: specialise-warps
; FIRST: persistent-grid {"multiprocessors": 1}
; RUN: ping-pong
; UNCHANGED

; CASE: one consumer has nobody to wait for
; INPUT: product_one_consumer.ma
; FIRST: specialise-warps
; RUN: ping-pong {"ordered_mma": true}
; UNCHANGED

; CASE: the schedule does not ask for it
; INPUT: product.ma
; PLAN: {"mapping": {"engine": "warpgroup", "ordered_mma": false}}
; FIRST: specialise-warps
; RUN: ping-pong
; UNCHANGED

; CASE: a kernel without roles stays
; INPUT: product.ma
; RUN: ping-pong {"ordered_mma": true}
; UNCHANGED

; CASE: the number of iterations must not depend on the consumer
; INPUT: product.ma
; PLAN: {"mapping": {"engine": "warpgroup", "ordered_mma": true}}
; FIRST: specialise-warps
; EDIT: for t in 0..3 carry(%acc => for t in consumer..3 carry(%acc
; RUN: ping-pong
; ERROR: the number of passes through the ordered barrier depends on the consumer
