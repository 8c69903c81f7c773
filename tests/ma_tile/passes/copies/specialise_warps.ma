; A producer loads through pipelines of several stages; consumers wait for a stage, compute, and give it back.

; CASE: operands of one MMA share a pipeline
; INPUT: product.ma
; PLAN: {"mapping": {"engine": "warpgroup", "stages": 3}}
; RUN: specialise-warps
; COMPLETE: allocate-shared, synchronize
; CHECK: smem a : f16[i: 64, k: 64] stages 6
; CHECK: smem b : f16[j: 64, k: 64] stages 3
; CHECK: mbar full_a_b stages 3 arrivals 1 @
; CHECK: mbar empty_a_b stages 3 arrivals 8 @
; CHECK: pipeline a_b stages 3
; CHECK: role producer warps 0..4 registers 24 single {
; CHECK: for t in 0..3 carry() {
; CHECK-NEXT: mbar.wait empty_a_b[a_b_stage] parity 1 - a_b_phase
; CHECK-NEXT: mbar.expect full_a_b[a_b_stage] 24576
; CHECK-NEXT: tma.load a[a_b_stage * 2] swizzle 128, A[i0 * 128 + i, t * 64 + k] mbar full_a_b[a_b_stage]
; CHECK-NEXT: tma.load a[a_b_stage * 2 + 1] swizzle 128, A[i0 * 128 + 64 + i, t * 64 + k] mbar full_a_b[a_b_stage]
; CHECK-NEXT: tma.load b[a_b_stage] swizzle 128, B[j0 * 64 + j, t * 64 + k] mbar full_a_b[a_b_stage]
; CHECK-NEXT: advance a_b
; CHECK: role consumers warps 4..12 registers 240 consumers 2 {
; CHECK-NOT: tma.load
; CHECK: mbar.wait full_a_b[a_b_stage] parity a_b_phase
; CHECK-NEXT: mma wgmma.f16 smem a[a_b_stage * 2 + consumer] swizzle 128, smem b[a_b_stage]
; CHECK-NEXT: mbar.arrive empty_a_b[a_b_stage] each warp
; CHECK-NEXT: advance a_b
; CHECK-NOT: tma.load
; CHECK: st.global

; CASE: roles have warps, registers and consumers
; INPUT: product_one_consumer.ma
; PLAN: {"mapping": {"engine": "warpgroup", "producer_registers": 40, "consumer_registers": 232}}
; RUN: specialise-warps
; COMPLETE: allocate-shared, synchronize
; CHECK: kernel product grid 8 warps 8 min_blocks 1 {
; CHECK: roles {
; CHECK-NEXT: role producer warps 0..4 registers 40 single {
; CHECK: role consumers warps 4..8 registers 232 {

; CASE: operands that are loaded once have their own depth, and are given back after the loop
; INPUT: chained.ma
; PLAN: {"mapping": {"engine": "warpgroup", "stages": 3, "resident_stages": 1}}
; RUN: specialise-warps
; COMPLETE: allocate-shared, synchronize
; CHECK: mbar full_q stages 1 arrivals 1
; CHECK: mbar full_k stages 3 arrivals 1
; CHECK: role consumers
; CHECK: mbar.wait full_q[q_stage] parity q_phase
; CHECK: for t in 0..3
; CHECK: mbar.wait full_k
; CHECK: mma wgmma.f16 smem q[q_stage * 2 + consumer]
; CHECK: mbar.arrive empty_k
; CHECK: mbar.wait full_v
; CHECK: mbar.arrive empty_v
; CHECK: yield
; CHECK: mbar.arrive empty_q[q_stage] each warp
; CHECK-NEXT: advance q

; CASE: two stages for operands that are loaded once
; INPUT: chained.ma
; PLAN: {"mapping": {"engine": "warpgroup", "stages": 2, "resident_stages": 2}}
; RUN: specialise-warps
; COMPLETE: allocate-shared, synchronize
; CHECK: mbar full_q stages 2 arrivals 1
; CHECK: mbar full_k stages 2 arrivals 1

; CASE: one buffer is loaded in several places
; INPUT: chained_ahead.ma
; RUN: specialise-warps
; COMPLETE: allocate-shared, synchronize
; CHECK: role producer
; CHECK: mbar.expect full_q
; CHECK: mbar.expect full_k
; CHECK: for t in 0..3 - 1 carry() {
; CHECK: mbar.expect full_k
; CHECK: mbar.expect full_v
; CHECK: yield
; CHECK: mbar.expect full_v
; CHECK: role consumers
; CHECK: mbar.wait full_q
; CHECK: mbar.wait full_k
; CHECK: %s0 = mma
; CHECK-NEXT: mbar.arrive empty_k
; CHECK: for t in
; CHECK: mbar.wait full_k
; CHECK: mbar.arrive empty_k
; CHECK: mbar.wait full_v
; CHECK: mbar.arrive empty_v
; CHECK: yield
; CHECK-NOT: full_k
; CHECK: mbar.wait full_v
; CHECK: mbar.arrive empty_v
; CHECK-NOT: mbar.wait full_
; CHECK-NOT: empty_k
; CHECK-NOT: empty_v

; CASE: a loop that loads nothing does not stand in the producer
; INPUT: product.ma
; EDIT: st.global => for u in 0..4 carry() {\n%x = neg %c : f32[i: 64, j: 64] #acc\nyield\n}\nst.global
; RUN: specialise-warps
; CHECK: role producer
; CHECK-NOT: for u
; CHECK: role consumers
; CHECK: for u in 0..4

; CASE: conditions around loads stand in both roles
; INPUT: product.ma
; EDIT: %zero = const => tma.load a[consumer] swizzle 128, A[consumer * 64 + i, k]\nif i0 < 1 {\ntma.load b[0] swizzle 128, B[j, k]\n%y = mma wgmma.f16 smem a[consumer] swizzle 128, smem b[0] swizzle 128 over k : f32[i: 64, j: 64] #acc\n}\n%zero = const
; RUN: specialise-warps
; COMPLETE: allocate-shared, synchronize
; CHECK: role producer
; CHECK: if i0 < 1 {
; CHECK: mbar.wait empty_b
; CHECK: tma.load b
; CHECK: advance b
; CHECK: role consumers
; CHECK: if i0 < 1 {
; CHECK: mbar.wait full_b
; CHECK: %y = mma
; CHECK: mbar.arrive empty_b
; CHECK: advance b

; CASE: the producer spells out variables that depend on the consumer
; INPUT: product.ma
; EDIT: %zero = const => let r = i0 * 128 + consumer * 64\n%zero = const
; EDIT: A[i0 * 128 + consumer * 64 + i, => A[r + i,
; RUN: specialise-warps
; COMPLETE: allocate-shared, synchronize
; CHECK: role producer
; CHECK-NOT: let r
; CHECK: A[i0 * 128 + i, t
; CHECK: A[i0 * 128 + 64 + i, t
; CHECK-NOT: let r
; CHECK: role consumers

; CASE: a load without readers is given back
; INPUT: product.ma
; EDIT: %zero = const => tma.load b[0] swizzle 128, B[j, k]\n%zero = const
; RUN: specialise-warps
; COMPLETE: allocate-shared, synchronize
; CHECK: role consumers
; CHECK: mbar.wait full_b
; CHECK: mbar.arrive empty_b
; CHECK: advance b
; CHECK: for t

; CASE: an address that threads compute
; INPUT: product.ma
; EDIT: smem a  => layout #one = reg() lane(*:32) warp(*:4)\nsmem a 
; EDIT: %zero = const => %p = const 1 : i32 #one\n%zero = const
; EDIT: B[j0 * 64 + j, => B[%p + j,
; RUN: specialise-warps
; UNCHANGED

; CASE: an address that threads compute, in a variable
; INPUT: product.ma
; EDIT: smem a  => layout #one = reg() lane(*:32) warp(*:4)\nsmem a 
; EDIT: %zero = const => %p = const 1 : i32 #one\nlet p0 = %p * 2\nlet p1 = p0 + 1\n%zero = const
; EDIT: B[j0 * 64 + j, => B[p1 + j,
; RUN: specialise-warps
; UNCHANGED

; CASE: a barrier of the whole block
; INPUT: product.ma
; EDIT: %zero = const => barrier\n%zero = const
; RUN: specialise-warps
; UNCHANGED

; CASE: a kernel with roles
; INPUT: product.ma
; FIRST: specialise-warps
; RUN: specialise-warps
; UNCHANGED

; CASE: the schedule does not ask for it
; INPUT: product.ma
; RUN: specialise-warps {"warp_specialised": false}
; UNCHANGED

; CASE: three consumers cannot have 240 registers
; INPUT: product_three_consumers.ma
; PLAN: {"mapping": {"engine": "warpgroup", "producer_registers": 24, "consumer_registers": 240}}
; RUN: specialise-warps
; ERROR: a producer of 24 leaves 160 per thread for 3 consumers, not 240

; CASE: three consumers can have 160 registers
; INPUT: product_three_consumers.ma
; PLAN: {"mapping": {"engine": "warpgroup", "producer_registers": 24, "consumer_registers": 160}}
; RUN: specialise-warps
; COMPLETE: allocate-shared, synchronize
; CHECK: role producer warps 0..4 registers 24
; CHECK: role consumers warps 4..16 registers 160 consumers 3

; CASE: two consumers cannot have 248 registers
; INPUT: product.ma
; PLAN: {"mapping": {"engine": "warpgroup", "producer_registers": 24, "consumer_registers": 248}}
; RUN: specialise-warps
; ERROR: leaves 240

; CASE: registers come in multiples of 8
; INPUT: product.ma
; PLAN: {"mapping": {"engine": "warpgroup", "producer_registers": 24, "consumer_registers": 236}}
; RUN: specialise-warps
; ERROR: not multiples of 8

; CASE: two consumers can have 160 registers
; INPUT: product.ma
; PLAN: {"mapping": {"engine": "warpgroup", "producer_registers": 24, "consumer_registers": 160}}
; RUN: specialise-warps
; CHECK: role consumers warps 4..12 registers 160 consumers 2

; CASE: a read of an unknown load
; INPUT: chained_ahead.ma
; EDIT: tma.load k[0] swizzle 128, K[(t + 1) * 64 + j, d] => let z = 0
; EDIT: yield %next, %sn => tma.load k[0] swizzle 128, K[(t + 1) * 64 + j, d]\nyield %next, %sn
; RUN: specialise-warps
; ERROR: shared buffer k is read at a point where the load that filled it is unknown

; CASE: loads of some consumers only
; INPUT: product.ma
; EDIT: for t in 0..3 carry => for t in 0..consumer + 2 carry
; RUN: specialise-warps
; ERROR: depends on the consumer

; CASE: a stage for each consumer of an operand that both read
; INPUT: product.ma
; EDIT: smem b : f16[j: 64, k: 64] stages 1 => smem b : f16[j: 64, k: 64] stages 3
; RUN: specialise-warps
; ERROR: shared buffer b has neither one stage nor one stage per consumer
