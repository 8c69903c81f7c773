; Blocks of a cluster load what they share once, and give stages back to all producers that fill them.

; CASE: operands of both blocks are loaded once
; Every block has rows of q of its own.
; INPUT: chained.ma
; EDIT: 256 => 512
; EDIT: grid 2 => grid 4
; PLAN: {"mapping": {"engine": "warpgroup", "cluster": 2}}
; FIRST: specialise-warps
; RUN: multicast-loads
; AGAIN
; COMPLETE: allocate-shared, synchronize
; CHECK: kernel chained grid 4 warps 12 min_blocks 1 cluster 2 {
; CHECK: mbar full_q stages 1 arrivals 1 @
; CHECK: mbar empty_q stages 1 arrivals 8 @
; CHECK: mbar full_k stages 2 arrivals 1 @
; CHECK: mbar empty_k stages 2 arrivals 16 @
; CHECK: mbar full_v stages 2 arrivals 1 @
; CHECK: mbar empty_v stages 2 arrivals 16 @
; CHECK: role producer
; CHECK-NOT: multicast
; CHECK: mbar.expect full_q[q_stage] 16384
; CHECK-NEXT: Q[i0 * 128 + i, d] mbar full_q[q_stage]
; CHECK-NOT: multicast
; CHECK: mbar.expect full_k[k_stage] 8192
; CHECK-NEXT: K[t * 64 + j, d] mbar full_k[k_stage] multicast 2
; CHECK: mbar.expect full_v[v_stage] 8192
; CHECK-NEXT: V[t * 64 + j, e] mbar full_v[v_stage] multicast 2
; CHECK-NOT: multicast
; CHECK: role consumers
; CHECK: mbar.arrive empty_k[k_stage] each warp cluster
; CHECK-NEXT: advance k
; CHECK: mbar.arrive empty_v[v_stage] each warp cluster
; CHECK-NEXT: advance v
; CHECK: mbar.arrive empty_q[q_stage] each warp{{$}}

; CASE: a shared pipeline may hold tiles of its own block
; INPUT: product.ma
; EDIT: 256 => 512
; EDIT: grid 2 => grid 4
; PLAN: {"mapping": {"engine": "warpgroup", "cluster": 2, "stages": 3}}
; FIRST: specialise-warps
; RUN: multicast-loads
; COMPLETE: allocate-shared, synchronize
; CHECK: mbar empty_a_b stages 3 arrivals 16 @
; CHECK: mbar.expect full_a_b[a_b_stage] 24576
; CHECK-NEXT: tma.load a[a_b_stage * 2] swizzle 128, A[i0 * 128 + i, t * 64 + k] mbar full_a_b[a_b_stage]{{$}}
; CHECK-NEXT: tma.load a[a_b_stage * 2 + 1] {{.*}} mbar full_a_b[a_b_stage]{{$}}
; CHECK-NEXT: tma.load b[a_b_stage] swizzle 128, B[j0 * 64 + j, t * 64 + k] mbar full_a_b[a_b_stage] multicast 2

; CASE: the other operand is shared where blocks differ in columns
; INPUT: product_columns.ma
; PLAN: {"mapping": {"engine": "warpgroup", "cluster": 2}}
; FIRST: specialise-warps
; RUN: multicast-loads
; COMPLETE: allocate-shared, synchronize
; CHECK: tma.load a[a_b_stage * 2] {{.*}}] multicast 2
; CHECK-NEXT: tma.load a[a_b_stage * 2 + 1] {{.*}}] multicast 2
; CHECK-NEXT: tma.load b[a_b_stage] {{.*}} mbar full_a_b[a_b_stage]{{$}}

; CASE: stages are given back where the MMA is outstanding
; INPUT: product.ma
; EDIT: 256 => 512
; EDIT: grid 2 => grid 4
; PLAN: {"mapping": {"engine": "warpgroup", "cluster": 2, "stages": 3}}
; FIRST: specialise-warps
; FIRST: async-mma
; RUN: multicast-loads
; COMPLETE: allocate-shared, synchronize
; CHECK: mbar.arrive empty_a_b[a_b_done_stage] each warp cluster
; CHECK: mbar.arrive empty_a_b[a_b_done_stage] each warp cluster

; CASE: a cluster takes pairs of tiles
; As many blocks stay as fit, and no half of a cluster.
; INPUT: product_columns.ma
; EDIT: 512 => 1024
; EDIT: grid 8 => grid 16
; PLAN: {"mapping": {"engine": "warpgroup", "cluster": 2, "persistent": "static"}}
; FIRST: specialise-warps
; FIRST: async-mma
; RUN: multicast-loads
; RUN: persistent-grid {"multiprocessors": 5}
; COMPLETE: allocate-shared, synchronize
; CHECK: kernel product grid 4 warps 12 min_blocks 1 cluster 2 {
; CHECK: role producer
; CHECK: tile.loop tile, iteration in 8 static {
; CHECK-NEXT: let i0 = tile
; CHECK-NEXT: let j0 = block % 2
; CHECK: mbar.wait empty_a_b
; CHECK: role consumers
; CHECK: tile.loop tile, iteration in 8 static {
; CHECK-NEXT: let i0 = tile
; CHECK-NEXT: let j0 = block % 2
; CHECK: mbar.arrive empty_a_b[a_b_done_stage] each warp cluster

; CASE: a cluster takes pairs of tiles in the order of a snake
; INPUT: product_columns.ma
; EDIT: 512 => 1024
; EDIT: grid 8 => grid 16
; PLAN: {"mapping": {"engine": "warpgroup", "cluster": 2, "persistent": "snake"}}
; FIRST: specialise-warps
; FIRST: async-mma
; RUN: multicast-loads
; RUN: persistent-grid {"multiprocessors": 5}
; COMPLETE: allocate-shared, synchronize
; CHECK: kernel product grid 4 warps 12 min_blocks 1 cluster 2 {
; CHECK: role producer
; CHECK: tile.loop tile, iteration in 8 snake {
; CHECK-NEXT: let i0 = tile
; CHECK-NEXT: let j0 = block % 2
; CHECK: mbar.wait empty_a_b
; CHECK: role consumers
; CHECK: tile.loop tile, iteration in 8 snake {
; CHECK-NEXT: let i0 = tile
; CHECK-NEXT: let j0 = block % 2
; CHECK: mbar.arrive empty_a_b[a_b_done_stage] each warp cluster

; CASE: a kernel without roles stays
; INPUT: chained.ma
; RUN: multicast-loads {"cluster": 2}
; UNCHANGED

; CASE: the schedule does not ask for it
; INPUT: chained.ma
; PLAN: {"mapping": {"engine": "warpgroup"}}
; FIRST: specialise-warps
; RUN: multicast-loads
; UNCHANGED

; CASE: the number of loads differs between the blocks
; INPUT: chained.ma
; EDIT: for t in 0..3 => for t in 0..i0 + 1
; PLAN: {"mapping": {"engine": "warpgroup", "cluster": 2}}
; FIRST: specialise-warps
; RUN: multicast-loads
; ERROR: the number of loads of k differs between the blocks of a cluster: `for t in 0..i0 + 1 carry()` depends on i0

; CASE: a condition that differs between the blocks
; INPUT: chained.ma
; EDIT: tma.load k[0] swizzle 128, K[t * 64 + j, d] => if i0 >= 1 {\ntma.load k[0] swizzle 128, K[t * 64 + j, d]\n}\ntma.load k[0] swizzle 128, K[t * 64 + j, d]
; PLAN: {"mapping": {"engine": "warpgroup", "cluster": 2}}
; FIRST: specialise-warps
; RUN: multicast-loads
; ERROR: the number of loads of k differs between the blocks of a cluster: `if i0 >= 1` depends on i0

; CASE: an odd number of tiles
; INPUT: product.ma
; EDIT: 256 => 384
; EDIT: grid 2 => grid 3
; PLAN: {"mapping": {"engine": "warpgroup", "cluster": 2}}
; FIRST: specialise-warps
; RUN: multicast-loads
; ERROR: 3 tiles are not a multiple of the cluster size 2

; CASE: an odd number of tiles along both axes
; INPUT: product_columns.ma
; EDIT: 512 => 384
; EDIT: B: f16[128 => B: f16[192
; EDIT: [384, 128] => [384, 192]
; EDIT: grid 8 => grid 9
; EDIT: block // 2 => block // 3
; EDIT: block % 2 => block % 3
; PLAN: {"mapping": {"engine": "warpgroup", "cluster": 2}}
; FIRST: specialise-warps
; RUN: multicast-loads
; ERROR: 9 tiles are not a multiple

; CASE: neighbours that differ along both axes share nothing
; INPUT: product_columns.ma
; EDIT: 512 => 256
; EDIT: B: f16[128 => B: f16[192
; EDIT: [256, 128] => [256, 192]
; EDIT: grid 8 => grid 6
; EDIT: block // 2 => block // 3
; EDIT: block % 2 => block % 3
; PLAN: {"mapping": {"engine": "warpgroup", "cluster": 2}}
; FIRST: specialise-warps
; RUN: multicast-loads
; ERROR: blocks next to each other differ in i0, j0, on which all loads depend

; CASE: tiles that a counter hands out
; INPUT: product.ma
; EDIT: 256 => 512
; EDIT: grid 2 => grid 4
; PLAN: {"mapping": {"engine": "warpgroup", "cluster": 2, "persistent": "dynamic"}}
; FIRST: specialise-warps
; RUN: multicast-loads
; ERROR: need static tile scheduling, not dynamic
