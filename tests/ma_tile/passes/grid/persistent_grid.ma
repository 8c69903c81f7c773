; Blocks stay on their multiprocessors and take one tile after another.

; CASE: every role visits the tiles
; INPUT: product_columns.ma
; PLAN: {"mapping": {"engine": "warpgroup", "epilogue": "tma", "persistent": "static"}}
; FIRST: tma-stores
; FIRST: specialise-warps
; RUN: persistent-grid {"multiprocessors": 3}
; COMPLETE: allocate-shared, synchronize
; CHECK: kernel product grid 3 warps
; CHECK: role producer
; CHECK: tile.loop tile, iteration in 8 static {
; CHECK-NEXT: let i0 = tile // 2
; CHECK-NEXT: let j0 = tile % 2
; CHECK: mbar.wait empty_a_b
; CHECK: advance a_b
; CHECK: role consumers
; CHECK: tile.loop tile, iteration in 8 static {
; CHECK-NEXT: let i0 = tile // 2
; CHECK-NEXT: let j0 = tile % 2
; CHECK: mbar.wait full_a_b
; CHECK: tma.store
; CHECK-NEXT: tma.commit
; CHECK-NEXT: }
; CHECK-NEXT: tma.wait 0 read
; CHECK-NEXT: }

; CASE: every role visits the tiles in the order of a snake
; INPUT: product_columns.ma
; PLAN: {"mapping": {"engine": "warpgroup", "epilogue": "tma", "persistent": "snake"}}
; FIRST: tma-stores
; FIRST: specialise-warps
; RUN: persistent-grid {"multiprocessors": 3}
; COMPLETE: allocate-shared, synchronize
; CHECK: kernel product grid 3 warps
; CHECK: role producer
; CHECK: tile.loop tile, iteration in 8 snake {
; CHECK-NEXT: let i0 = tile // 2
; CHECK-NEXT: let j0 = tile % 2
; CHECK: mbar.wait empty_a_b
; CHECK: advance a_b
; CHECK: role consumers
; CHECK: tile.loop tile, iteration in 8 snake {
; CHECK-NEXT: let i0 = tile // 2
; CHECK-NEXT: let j0 = tile % 2
; CHECK: mbar.wait full_a_b
; CHECK: tma.store
; CHECK-NEXT: tma.commit
; CHECK-NEXT: }
; CHECK-NEXT: tma.wait 0 read
; CHECK-NEXT: }

; CASE: tiles of a counter come through a queue
; INPUT: product_columns.ma
; PLAN: {"mapping": {"engine": "warpgroup", "epilogue": "tma", "persistent": "dynamic"}}
; FIRST: tma-stores
; FIRST: specialise-warps
; RUN: persistent-grid {"multiprocessors": 3}
; COMPLETE: allocate-shared, synchronize
; CHECK: smem queue : i32[] stages 2
; CHECK: mbar full_queue stages 2 arrivals 1 @
; CHECK: mbar empty_queue stages 2 arrivals 8 @
; CHECK: role producer
; CHECK: tile.first next_tile
; CHECK: tile.loop tile, iteration in 8 dynamic {
; CHECK: mbar.wait empty_queue[queue_stage] parity 1 - queue_phase
; CHECK: let tile = next_tile
; CHECK: tile.reset tile of 8
; CHECK: queue.push queue[queue_stage], tile
; CHECK: mbar.arrive full_queue[queue_stage]
; CHECK: advance queue
; CHECK: break if tile >= 8
; CHECK: let i0 = tile // 2
; CHECK: tma.load
; CHECK: tile.fetch next_tile
; CHECK: }
; CHECK: role consumers
; CHECK: tile.loop tile, iteration in 8 dynamic {
; CHECK: mbar.wait full_queue[queue_stage] parity queue_phase
; CHECK: queue.pop tile, queue[queue_stage]
; CHECK: mbar.arrive empty_queue[queue_stage] each warp
; CHECK: advance queue
; CHECK: break if tile >= 8
; CHECK: let i0 = tile // 2
; CHECK: tma.store

; CASE: consumers with tiles of their own
; An ordered barrier surrounds all waits for loads of a tile.
; INPUT: chained_one_consumer.ma
; EDIT: for t in 0..3 => for t in 0..i0 + 1
; PLAN: {"mapping": {"engine": "warpgroup", "epilogue": "tma", "persistent": "static", "tile_scheduling": "pingpong"}}
; FIRST: tma-stores
; FIRST: specialise-warps
; RUN: persistent-grid {"multiprocessors": 3}
; COMPLETE: allocate-shared, synchronize
; CHECK: kernel chained grid 3 warps 12 min_blocks
; CHECK: mbar empty_k stages 2 arrivals 4 @
; CHECK: role producer
; CHECK: tile.loop tile, iteration in
; CHECK-NOT: iteration
; CHECK: role consumers
; CHECK: if consumer == 1 {
; CHECK-NEXT: named.arrive 4, 256
; CHECK: let i0 = tile
; CHECK-NEXT: if iteration % 2 == consumer {
; CHECK: barrier (4 + consumer), 256
; CHECK: mbar.wait full_q
; CHECK: for t in
; CHECK: yield
; CHECK: named.arrive (4 + (consumer + 1) % 2), 256
; CHECK: st.matrix out_O[consumer]
; CHECK: tma.commit
; CHECK: }
; CHECK: if iteration % 2 != consumer {
; CHECK-NEXT: advance k by i0 + 1
; CHECK-NEXT: advance v by i0 + 1
; CHECK-NEXT: advance q by 1
; CHECK-NEXT: }

; CASE: loops that may not run advance no pipeline
; INPUT: chained_one_consumer.ma
; EDIT: for t in 0..3 => for t in 2..i0
; PLAN: {"mapping": {"engine": "warpgroup", "epilogue": "tma", "persistent": "static", "tile_scheduling": "pingpong"}}
; FIRST: tma-stores
; FIRST: specialise-warps
; RUN: persistent-grid {"multiprocessors": 3}
; COMPLETE: allocate-shared, synchronize
; CHECK: role consumers
; CHECK: if iteration % 2 != consumer {
; CHECK: advance k by max(i0 - 2, 0)

; CASE: stages under a condition are counted: t >= 1
; INPUT: product_one_consumer.ma
; EDIT: %c = for => for t in 0..5 carry() {\nif t >= 1 {\ntma.load b[0] swizzle 128, B[j, k]\n}\nyield\n}\n%c = for
; PLAN: {"mapping": {"engine": "warpgroup", "persistent": "static", "tile_scheduling": "pingpong"}}
; FIRST: specialise-warps
; RUN: persistent-grid {"multiprocessors": 3}
; COMPLETE: allocate-shared, synchronize
; CHECK: if iteration % 2 != consumer {
; CHECK: advance b by 7{{$}}

; CASE: stages under a condition are counted: t > 1
; INPUT: product_one_consumer.ma
; EDIT: %c = for => for t in 0..5 carry() {\nif t > 1 {\ntma.load b[0] swizzle 128, B[j, k]\n}\nyield\n}\n%c = for
; PLAN: {"mapping": {"engine": "warpgroup", "persistent": "static", "tile_scheduling": "pingpong"}}
; FIRST: specialise-warps
; RUN: persistent-grid {"multiprocessors": 3}
; COMPLETE: allocate-shared, synchronize
; CHECK: if iteration % 2 != consumer {
; CHECK: advance b by 6{{$}}

; CASE: stages under a condition are counted: t < 2
; INPUT: product_one_consumer.ma
; EDIT: %c = for => for t in 0..5 carry() {\nif t < 2 {\ntma.load b[0] swizzle 128, B[j, k]\n}\nyield\n}\n%c = for
; PLAN: {"mapping": {"engine": "warpgroup", "persistent": "static", "tile_scheduling": "pingpong"}}
; FIRST: specialise-warps
; RUN: persistent-grid {"multiprocessors": 3}
; COMPLETE: allocate-shared, synchronize
; CHECK: if iteration % 2 != consumer {
; CHECK: advance b by 5{{$}}

; CASE: stages under a condition are counted: t <= 2
; INPUT: product_one_consumer.ma
; EDIT: %c = for => for t in 0..5 carry() {\nif t <= 2 {\ntma.load b[0] swizzle 128, B[j, k]\n}\nyield\n}\n%c = for
; PLAN: {"mapping": {"engine": "warpgroup", "persistent": "static", "tile_scheduling": "pingpong"}}
; FIRST: specialise-warps
; RUN: persistent-grid {"multiprocessors": 3}
; COMPLETE: allocate-shared, synchronize
; CHECK: if iteration % 2 != consumer {
; CHECK: advance b by 6{{$}}

; CASE: stages under a condition are counted: 1 <= t
; INPUT: product_one_consumer.ma
; EDIT: %c = for => for t in 0..5 carry() {\nif 1 <= t {\ntma.load b[0] swizzle 128, B[j, k]\n}\nyield\n}\n%c = for
; PLAN: {"mapping": {"engine": "warpgroup", "persistent": "static", "tile_scheduling": "pingpong"}}
; FIRST: specialise-warps
; RUN: persistent-grid {"multiprocessors": 3}
; COMPLETE: allocate-shared, synchronize
; CHECK: if iteration % 2 != consumer {
; CHECK: advance b by 7{{$}}

; CASE: stages under a condition are counted: 2 > t
; INPUT: product_one_consumer.ma
; EDIT: %c = for => for t in 0..5 carry() {\nif 2 > t {\ntma.load b[0] swizzle 128, B[j, k]\n}\nyield\n}\n%c = for
; PLAN: {"mapping": {"engine": "warpgroup", "persistent": "static", "tile_scheduling": "pingpong"}}
; FIRST: specialise-warps
; RUN: persistent-grid {"multiprocessors": 3}
; COMPLETE: allocate-shared, synchronize
; CHECK: if iteration % 2 != consumer {
; CHECK: advance b by 5{{$}}

; CASE: stages under a condition are counted: t < 9
; INPUT: product_one_consumer.ma
; EDIT: %c = for => for t in 0..5 carry() {\nif t < 9 {\ntma.load b[0] swizzle 128, B[j, k]\n}\nyield\n}\n%c = for
; PLAN: {"mapping": {"engine": "warpgroup", "persistent": "static", "tile_scheduling": "pingpong"}}
; FIRST: specialise-warps
; RUN: persistent-grid {"multiprocessors": 3}
; COMPLETE: allocate-shared, synchronize
; CHECK: if iteration % 2 != consumer {
; CHECK: advance b by 8{{$}}

; CASE: stages under a condition are counted: i0 > 2
; INPUT: product_one_consumer.ma
; EDIT: %c = for => for t in 0..5 carry() {\nif i0 > 2 {\ntma.load b[0] swizzle 128, B[j, k]\n}\nyield\n}\n%c = for
; PLAN: {"mapping": {"engine": "warpgroup", "persistent": "static", "tile_scheduling": "pingpong"}}
; FIRST: specialise-warps
; RUN: persistent-grid {"multiprocessors": 3}
; COMPLETE: allocate-shared, synchronize
; CHECK: if iteration % 2 != consumer {
; CHECK: advance b by select(i0 >= 3, 5, 0) + 3{{$}}

; CASE: stages under a condition are counted: t >= i0
; INPUT: product_one_consumer.ma
; EDIT: %c = for => for t in 0..5 carry() {\nif t >= i0 {\ntma.load b[0] swizzle 128, B[j, k]\n}\nyield\n}\n%c = for
; PLAN: {"mapping": {"engine": "warpgroup", "persistent": "static", "tile_scheduling": "pingpong"}}
; FIRST: specialise-warps
; RUN: persistent-grid {"multiprocessors": 3}
; COMPLETE: allocate-shared, synchronize
; CHECK: if iteration % 2 != consumer {
; CHECK: advance b by max(-i0 + 5, 0) + 3{{$}}

; CASE: a number of stages that cannot be counted
; INPUT: product_one_consumer.ma
; EDIT: %c = for => for s in 0..2 carry() {\nfor r in 0..s carry() {\ntma.load b[0] swizzle 128, B[j, k]\nyield\n}\nyield\n}\n%c = for
; PLAN: {"mapping": {"engine": "warpgroup", "persistent": "static", "tile_scheduling": "pingpong"}}
; FIRST: specialise-warps
; RUN: persistent-grid {"multiprocessors": 3}
; ERROR: the number of stages of b that a tile uses depends on s

; CASE: a kernel without roles stays
; INPUT: product_columns.ma
; PLAN: {"mapping": {"engine": "warpgroup", "persistent": "static"}}
; RUN: persistent-grid {"multiprocessors": 3}
; UNCHANGED

; CASE: one tile a block
; INPUT: product_columns.ma
; PLAN: {"mapping": {"engine": "warpgroup", "persistent": "static"}}
; FIRST: specialise-warps
; RUN: persistent-grid {"multiprocessors": 8}
; UNCHANGED

; CASE: the schedule does not ask for it
; INPUT: product_columns.ma
; PLAN: {"mapping": {"engine": "warpgroup", "persistent": "none"}}
; FIRST: specialise-warps
; RUN: persistent-grid {"multiprocessors": 3}
; UNCHANGED

; CASE: pingpong tile scheduling of a grid that is not persistent
; INPUT: product_one_consumer.ma
; PLAN: {"mapping": {"engine": "warpgroup", "persistent": "none", "tile_scheduling": "pingpong"}}
; RUN: specialise-warps
; RUN: persistent-grid {"multiprocessors": 3}
; ERROR: pingpong tile scheduling needs a persistent grid
