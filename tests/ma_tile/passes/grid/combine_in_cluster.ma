; The blocks of a kernel become a cluster, and one of them combines their partial results.

; CASE: blocks become a cluster
; INPUT: sums_alike.ma
; PLAN: part {"mapping": {"engine": "warp", "cluster": 4}}
; RUN: combine-in-cluster
; AGAIN
; COMPLETE:
; TOLERANCE: 1e-5
; CHECK-NOT: temp
; CHECK-NOT: kernel part
; CHECK: kernel whole grid 8 warps 1 min_blocks 1 cluster 4 {
; CHECK-NEXT: let rank = block % 4
; CHECK-NEXT: let r_block = block // 4
; CHECK: smem s : f32[r: 16, d: 32] stages 1 swizzle 0 pad 0 @ 0
; CHECK-NEXT: smem part_T : f32[d: 32] stages 4 swizzle 0 pad 0 @ 2048
; CHECK-NEXT: smem parts_T : f32[c: 4, d: 32] stages 1 swizzle 0 pad 0 over part_T @ 2048
; CHECK-NEXT: smem part_M : f32[] stages 4 swizzle 0 pad 0 @ 2560
; CHECK-NEXT: smem parts_M : f32[c: 4] stages 1 swizzle 0 pad 0 over part_M @ 2560
; CHECK-NEXT: cluster.arrive relaxed
; CHECK-NEXT: ld.global X[r_block, rank * 16 + r, d]
; CHECK-NOT: st.global
; CHECK-NOT: cluster
; CHECK: reduce max
; CHECK-NEXT: cluster.wait
; CHECK-NEXT: st.shared part_T[rank] block 0, %sum2 vec 1
; CHECK-NEXT: st.shared part_M[rank] block 0, %most2 vec 1
; CHECK-NEXT: cluster.arrive{{$}}
; CHECK-NEXT: if rank == 0 {
; CHECK-NEXT: cluster.wait
; CHECK-NEXT: %t = ld.shared parts_T[0] vec 1
; CHECK-NEXT: %m = ld.shared parts_M[0] vec 4
; CHECK-NOT: ld.global
; CHECK: st.global Y[r_block, d]

; CASE: a cluster of two
; INPUT: sums_alike.ma
; EDIT: grid 8 => grid 4
; EDIT: f32[4, 2 => f32[2, 2
; EDIT: c: 4 => c: 2
; EDIT: c:4x1 => c:2x1
; EDIT: [2, 64, 32] => [2, 32, 32]
; PLAN: part {"mapping": {"engine": "warp", "cluster": 2}}
; RUN: combine-in-cluster
; COMPLETE:
; TOLERANCE: 1e-5
; CHECK: kernel whole grid 4 warps 1 min_blocks 1 cluster 2 {
; CHECK: let rank = block % 2
; CHECK-NEXT: let r_block = block // 2

; CASE: loads under a mask are zero outside
; INPUT: sums_alike.ma
; EDIT: M[c, r] vec => M[c, r] where c < 3 vec
; PLAN: part {"mapping": {"engine": "warp", "cluster": 4}}
; RUN: combine-in-cluster
; COMPLETE:
; TOLERANCE: 1e-5
; CHECK: index c < 3 : bool[c: 4]

; CASE: blocks are numbered in any order
; INPUT: sums_alike.ma
; EDIT: let c = block // 2 => let c = 3 - block % 4
; EDIT: let b = block % 2 => let b = block // 4
; PLAN: part {"mapping": {"engine": "warp", "cluster": 4}}
; RUN: combine-in-cluster
; COMPLETE:
; TOLERANCE: 1e-5
; CHECK: st.shared part_T[{{.*}}rank{{.*}}] block 0

; CASE: a reader that knows its block
; What it calls a block is a cluster now.
; INPUT: sums_alike.ma
; EDIT: Y[r, d] => Y[block, d]
; PLAN: part {"mapping": {"engine": "warp", "cluster": 4}}
; RUN: combine-in-cluster
; COMPLETE:
; TOLERANCE: 1e-5
; CHECK: Y[block // 4, d]

; CASE: without a schedule kernels stay apart
; INPUT: sums_alike.ma
; RUN: combine-in-cluster
; UNCHANGED

; CASE: a cluster of one
; INPUT: sums_alike.ma
; PLAN: part {"mapping": {"engine": "warp", "cluster": 1}}
; RUN: combine-in-cluster
; UNCHANGED

; CASE: the option overrides the schedule
; INPUT: sums_alike.ma
; PLAN: part {"mapping": {"engine": "warp", "cluster": 4}}
; RUN: combine-in-cluster {"cluster": 1}
; UNCHANGED

; CASE: clusters of warpgroups share loads instead
; INPUT: sums_alike.ma
; PLAN: part {"mapping": {"engine": "warpgroup", "cluster": 2}}
; PLAN: {"mapping": {"engine": "warpgroup"}}
; RUN: combine-in-cluster
; UNCHANGED

; CASE: refused: a target without clusters
; INPUT: sums_alike.ma
; EDIT: sm_90a => sm_90
; PLAN: part {"mapping": {"engine": "warp", "cluster": 4}}
; RUN: combine-in-cluster
; ERROR: kernel part: the target has no clusters

; CASE: refused: not several
; INPUT: sums_alike.ma
; EDIT: grid 8 => grid 2
; PLAN: part {"mapping": {"engine": "warp", "cluster": 4}}
; RUN: combine-in-cluster
; ERROR: kernel part: 2 blocks cannot be divided into two or more for each of 2

; CASE: refused: another number
; INPUT: sums_alike.ma
; PLAN: part {"mapping": {"engine": "warp", "cluster": 2}}
; RUN: combine-in-cluster
; ERROR: kernel part: 4 blocks compute one result, but a cluster has 2

; CASE: refused: a cluster already
; INPUT: sums_alike.ma
; EDIT: kernel part grid 8 warps 1 min_blocks 1 => kernel part grid 8 warps 1 min_blocks 1 cluster 2
; PLAN: part {"mapping": {"engine": "warp", "cluster": 4}}
; RUN: combine-in-cluster
; ERROR: kernel part: kernel part already has a tile scheduler, consumers or a cluster

; CASE: refused: roles
; INPUT: sums_alike.ma
; EDIT: \n    %t = ld.global => \n    roles {\n      role one warps 0..1 {\n      }\n    }\n    %t = ld.global
; PLAN: part {"mapping": {"engine": "warp", "cluster": 4}}
; RUN: combine-in-cluster
; ERROR: kernel part: kernel whole has roles or mbarriers

; CASE: refused: an mbarrier
; INPUT: sums_alike.ma
; EDIT: \n    %t = ld.global => \n    mbar full stages 1 arrivals 1 @ 0\n    %t = ld.global
; PLAN: part {"mapping": {"engine": "warp", "cluster": 4}}
; RUN: combine-in-cluster
; ERROR: kernel part: kernel whole has roles or mbarriers

; CASE: refused: warps
; INPUT: sums.ma
; PLAN: part {"mapping": {"engine": "warp", "cluster": 4}}
; RUN: combine-in-cluster
; ERROR: kernel part: its blocks have 1 warp, but those of whole have 4

; CASE: refused: two stores
; INPUT: sums_alike.ma
; EDIT: \n    st.global T[c, b, d], %sum vec 1\n => \n    st.global T[c, b, d], %sum vec 1\n    st.global T[c, b, d], %sum vec 1\n
; PLAN: part {"mapping": {"engine": "warp", "cluster": 4}}
; RUN: combine-in-cluster
; ERROR: kernel part: T is stored more than once

; CASE: refused: a block's number
; INPUT: sums_alike.ma
; EDIT: ld.global X[b, c * 16 + r, d] => ld.global X[block % 2, c * 16 + r, d]
; PLAN: part {"mapping": {"engine": "warp", "cluster": 4}}
; RUN: combine-in-cluster
; ERROR: kernel part: its body depends on the block number

; CASE: refused: another part
; INPUT: sums_alike.ma
; EDIT: M[c, r] => M[c, 1 - r]
; PLAN: part {"mapping": {"engine": "warp", "cluster": 4}}
; RUN: combine-in-cluster
; ERROR: kernel part: a block reads another part of M than its ranks write

; CASE: refused: other blocks
; INPUT: sums_alike.ma
; EDIT: let r = block => let r = 0
; PLAN: part {"mapping": {"engine": "warp", "cluster": 4}}
; RUN: combine-in-cluster
; ERROR: kernel part: its blocks are not the ranks of the blocks that read them

; CASE: refused: shared memory
; INPUT: sums_alike.ma
; EDIT: stages 1 swizzle 0 pad 0 @ 0 => stages 110 swizzle 0 pad 4 @ 0
; PLAN: part {"mapping": {"engine": "warp", "cluster": 4}}
; RUN: combine-in-cluster
; ERROR: kernel part: 232848 bytes of shared memory are needed, but a block may have 232448 (s 232320, part_T 512, parts_T 512, part_M 16, parts_M 16)

; CASE: refused: no kernel reads an output
; INPUT: sums_alike.ma
; PLAN: whole {"mapping": {"engine": "warp", "cluster": 4}}
; RUN: combine-in-cluster
; ERROR: kernel whole: a cluster of 4: its results are not read by one other kernel alone
