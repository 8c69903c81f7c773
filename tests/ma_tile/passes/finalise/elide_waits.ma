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
