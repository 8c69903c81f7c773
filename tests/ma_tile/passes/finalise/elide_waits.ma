; Synchronisation that can never block: first waits, last releases, waits before the first store.

; CASE: an operand that is loaded once is never released
; INPUT: chained.ma
; FIRST: specialise-warps
; RUN: elide-waits
; AGAIN
; COMPLETE: allocate-shared, synchronize
; CHECK-NOT: empty_q
; CHECK: role producer
; CHECK-NEXT: mbar.expect full_q

; CASE: a persistent block needs all of it
; INPUT: product.ma
; PLAN: {"mapping": {"engine": "warpgroup", "persistent": "static"}}
; FIRST: specialise-warps
; FIRST: persistent-grid {"multiprocessors": 1}
; RUN: elide-waits
; UNCHANGED

; CASE: so does a block of a cluster
; INPUT: chained.ma
; PLAN: {"mapping": {"engine": "warpgroup", "cluster": 2}}
; FIRST: specialise-warps
; FIRST: multicast-loads
; RUN: elide-waits
; UNCHANGED

; CASE: the first store of a block waits for no store
; INPUT: product.ma
; PLAN: {"mapping": {"engine": "warpgroup", "epilogue": "tma"}}
; FIRST: tma-stores
; FIRST: specialise-warps
; RUN: elide-waits
; COMPLETE: allocate-shared, synchronize
; CHECK: %c_f16 = cast
; CHECK-NOT: tma.wait
; CHECK: st.matrix
; CHECK: tma.store
; CHECK-NEXT: tma.commit
; CHECK-NEXT: tma.wait 0 read

; CASE: the releases of outstanding MMAs have a state of their own; nothing waits for the last of them
; INPUT: product.ma
; PLAN: {"mapping": {"engine": "warpgroup", "stages": 2}}
; FIRST: specialise-warps
; FIRST: async-mma
; RUN: elide-waits
; AGAIN
; COMPLETE: allocate-shared, synchronize
; CHECK: role consumers
; CHECK: wg.wait 1
; CHECK: mbar.arrive empty_a_b[a_b_done_stage]
; CHECK-NEXT: advance a_b_done
; CHECK: wg.wait 0 %c
; CHECK-NEXT: st.global

; CASE: with as many stages as iterations nothing is released, which needs no state, and no loop waits
; INPUT: product.ma
; PLAN: {"mapping": {"engine": "warpgroup", "stages": 3}}
; FIRST: specialise-warps
; FIRST: async-mma
; RUN: elide-waits
; AGAIN
; COMPLETE: allocate-shared, synchronize
; CHECK-NOT: {{empty_a_b|a_b_done}}
; CHECK: role consumers
; CHECK: wg.commit
; CHECK-NEXT: advance a_b
; CHECK-NEXT: yield
; CHECK: wg.wait 0 %c
