; The blocks of a kernel become consumers of the block that combines their partial results.

; CASE: blocks become consumers
; INPUT: sums.ma
; PLAN: part {"mapping": {"engine": "warp", "combine_in_block": true}}
; RUN: combine-in-block
; AGAIN
; COMPLETE:
; TOLERANCE: 1e-5
; CHECK-NOT: temp
; CHECK-NOT: kernel part
; CHECK: kernel whole grid 2 warps 4
; CHECK-NEXT: let r_block = block
; CHECK: smem s : f32[r: 16, d: 32] stages 4 swizzle 0 pad 0 @ 0
; CHECK-NEXT: smem part_T : f32[d: 32] stages 4 swizzle 0 pad 0 @ 8192
; CHECK-NEXT: smem parts_T : f32[c: 4, d: 32] stages 1 swizzle 0 pad 0 over part_T @ 8192
; CHECK: roles {
; CHECK-NEXT: role partial warps 0..4 consumers 4 {
; CHECK-NEXT: ld.global X[r_block, consumer * 16 + r, d]
; CHECK-NEXT: st.shared s[consumer], %x
; CHECK-NEXT: barrier (1 + consumer), 32
; CHECK-NEXT: ld.shared s[consumer]
; CHECK-NOT: st.global
; CHECK: barrier
; CHECK-NEXT: st.shared part_T[consumer], %{{sum[0-9]*}} vec 1
; CHECK-NEXT: st.shared part_M[consumer], %{{most[0-9]*}} vec 1
; CHECK-NEXT: }
; CHECK-NEXT: }
; CHECK-NEXT: barrier
; CHECK-NEXT: %t = ld.shared parts_T[0] vec 1
; CHECK-NEXT: %m = ld.shared parts_M[0] vec 4
; CHECK-NOT: ld.global
; CHECK: st.global Y[r_block, d]

; CASE: loads under a mask are zero outside
; INPUT: sums.ma
; EDIT: M[c, r] vec => M[c, r] where c < 3 vec
; EDIT: Y[r, d], %y => Y[r, d], %y where d < 31
; PLAN: part {"mapping": {"engine": "warp", "combine_in_block": true}}
; RUN: combine-in-block
; COMPLETE:
; TOLERANCE: 1e-5
; CHECK: index c < 3 : bool[c: 4]

; CASE: consumers of one warp need no named barriers
; INPUT: sums.ma
; EDIT: grid 8 => grid 32
; EDIT: f32[4, 2 => f32[16, 2
; EDIT: c:4x1 => c:16x1
; EDIT: c: 4 => c: 16
; EDIT: 64, 32 => 256, 32
; EDIT: warps 4 => warps 16
; EDIT: *:4 => *:16
; PLAN: part {"mapping": {"engine": "warp", "combine_in_block": true}}
; RUN: combine-in-block
; COMPLETE:
; TOLERANCE: 1e-5
; CHECK: role partial warps 0..16 consumers 16 {
; CHECK: barrier (1 + consumer), 32

; CASE: blocks are numbered in any order
; INPUT: sums.ma
; EDIT: let c = block // 2 => let c = 3 - block % 4
; EDIT: let b = block % 2 => let b = block // 4
; PLAN: part {"mapping": {"engine": "warp", "combine_in_block": true}}
; RUN: combine-in-block
; COMPLETE:
; TOLERANCE: 1e-5
; CHECK: role partial warps 0..4 consumers 4 {
; CHECK: st.shared part_T[{{.*}}consumer{{.*}}]

; CASE: partial results larger than what is read stay in registers
; As rows of a matrix instruction that no head has.
; INPUT: sums.ma
; EDIT: temp T: f32[4, 2, 32] => temp T: f32[4, 2, 2, 32]
; EDIT: %sum = reduce sum %y over r : f32[d: 32] #d\n    %most => %two = ld.global X[b, c * 16 + e, d] vec 1 : f32[e: 2, d: 32] #e\n    %most
; EDIT: T[c, b, d], %sum vec => T[c, b, e, d], %two where e < 1 vec
; EDIT: T[c, r, d] => T[c, r, 0, d]
; EDIT: \n    layout #d = reg() lane(d:32x1) warp()\n => \n    layout #e = reg(e:2x1) lane(d:32x1) warp()\n
; PLAN: part {"mapping": {"engine": "warp", "combine_in_block": true}}
; RUN: combine-in-block
; COMPLETE:
; TOLERANCE: 1e-5
; CHECK: smem part_T : f32[e: 1, d: 32] stages 4
; CHECK: slice %two at e 0 : f32[e: 1, d: 32]

; CASE: without a schedule kernels stay apart
; INPUT: sums.ma
; RUN: combine-in-block
; UNCHANGED

; CASE: the schedule does not ask for it
; INPUT: sums.ma
; PLAN: {"mapping": {"engine": "warp"}}
; RUN: combine-in-block
; UNCHANGED

; CASE: the option overrides the schedule
; INPUT: sums.ma
; PLAN: part {"mapping": {"engine": "warp", "combine_in_block": true}}
; RUN: combine-in-block {"combine_in_block": false}
; UNCHANGED

; CASE: refused: not several
; INPUT: sums.ma
; EDIT: grid 8 => grid 2
; PLAN: part {"mapping": {"engine": "warp", "combine_in_block": true}}
; RUN: combine-in-block
; ERROR: kernel part: 2 blocks cannot be divided into two or more for each of 2

; CASE: refused: not equally many
; INPUT: sums.ma
; EDIT: kernel whole grid 2 => kernel whole grid 3
; PLAN: part {"mapping": {"engine": "warp", "combine_in_block": true}}
; RUN: combine-in-block
; ERROR: kernel part: 8 blocks cannot be divided into two or more for each of 3

; CASE: refused: roles
; INPUT: sums.ma
; EDIT: %t = ld.global => roles {\nrole one warps 0..4 {\n}\n}\n%t = ld.global
; PLAN: part {"mapping": {"engine": "warp", "combine_in_block": true}}
; RUN: combine-in-block
; ERROR: kernel part: kernel whole already has roles, consumers or mbarriers

; CASE: refused: scratch
; INPUT: sums.ma
; EDIT: over r, d : f32 #one => over r, d scratch s : f32 #one
; PLAN: part {"mapping": {"engine": "warp", "combine_in_block": true}}
; RUN: combine-in-block
; ERROR: kernel part: its warps exchange values through scratch memory

; CASE: refused: warps
; INPUT: sums.ma
; EDIT: grid 2 warps 4 => grid 2 warps 2
; EDIT: warp(*:4) => warp(*:2)
; PLAN: part {"mapping": {"engine": "warp", "combine_in_block": true}}
; RUN: combine-in-block
; ERROR: kernel part: 4 consumers of 1 warp, but whole has 2 warps

; CASE: refused: barriers
; INPUT: sums.ma
; EDIT: grid 8 => grid 32
; EDIT: f32[4, 2 => f32[16, 2
; EDIT: c:4x1 => c:16x1
; EDIT: c: 4 => c: 16
; EDIT: 64, 32 => 256, 32
; EDIT: warps 4 => warps 32
; EDIT: *:4 => *:32
; EDIT: warps 1 => warps 2
; EDIT: warp() => warp(*:2)
; PLAN: part {"mapping": {"engine": "warp", "combine_in_block": true}}
; RUN: combine-in-block
; ERROR: kernel part: 16 consumers need more named barriers than a block has

; CASE: refused: two stores
; INPUT: sums.ma
; EDIT: \n    st.global T[c, b, d], %sum vec 1\n => \n    st.global T[c, b, d], %sum vec 1\n    st.global T[c, b, d], %sum vec 1\n
; PLAN: part {"mapping": {"engine": "warp", "combine_in_block": true}}
; RUN: combine-in-block
; ERROR: kernel part: T is stored more than once

; CASE: refused: a store in a condition
; INPUT: sums.ma
; EDIT: \n    st.global T[c, b, d], %sum vec 1\n => \n    if c < 2 {\n    st.global T[c, b, d], %sum vec 1\n    }\n
; PLAN: part {"mapping": {"engine": "warp", "combine_in_block": true}}
; RUN: combine-in-block
; ERROR: kernel part: T is stored more than once

; CASE: refused: a copy
; INPUT: sums.ma
; EDIT: \n    %t = ld.global T[c, r, d] vec 1 : f32[c: 4, d: 32] #all\n => \n    layout #copy = reg(c:4x1) lane(d:32x1) warp(*:4)\n    smem z : f32[c: 4, d: 32] stages 1 swizzle 0 pad 0 @ 0\n    cp.async z[0], T[c, r, d] vec 1 threads #copy\n    cp.commit\n    cp.wait 0\n    barrier\n    %t = ld.shared z[0] vec 1 : f32[c: 4, d: 32] #all\n
; PLAN: part {"mapping": {"engine": "warp", "combine_in_block": true}}
; RUN: combine-in-block
; ERROR: kernel part: T is copied, not loaded

; CASE: refused: two loads
; INPUT: sums.ma
; EDIT: \n    %t = ld.global T[c, r, d] vec 1 : f32[c: 4, d: 32] #all\n => \n    %t = ld.global T[c, r, d] vec 1 : f32[c: 4, d: 32] #all\n    %u = ld.global T[c, 1 - r, d] vec 1 : f32[c: 4, d: 32] #all\n
; PLAN: part {"mapping": {"engine": "warp", "combine_in_block": true}}
; RUN: combine-in-block
; ERROR: kernel part: T is loaded in several ways

; CASE: refused: computed
; INPUT: sums.ma
; EDIT: \n    st.global T[c, b, d], %sum vec 1\n => \n    %n = const 0 : i32 #one\n    st.global T[c + %n, b, d], %sum vec 1\n
; PLAN: part {"mapping": {"engine": "warp", "combine_in_block": true}}
; RUN: combine-in-block
; ERROR: kernel part: the position of T depends on computed values

; CASE: refused: reversed
; INPUT: sums.ma
; EDIT: T[c, b, d] => T[c, b, 31 - d]
; PLAN: part {"mapping": {"engine": "warp", "combine_in_block": true}}
; RUN: combine-in-block
; ERROR: kernel part: an index of T is not `base` or `base + AXIS`

; CASE: refused: an axis twice
; INPUT: sums.ma
; EDIT: T[c, r, d] => T[c, c // 4 + r, d]
; PLAN: part {"mapping": {"engine": "warp", "combine_in_block": true}}
; RUN: combine-in-block
; ERROR: kernel part: an index of T is not `base` or `base + AXIS`

; CASE: refused: a diagonal
; INPUT: sums.ma
; EDIT: M[c, r] vec => M[c, r + c] where r + c < 2 vec
; PLAN: part {"mapping": {"engine": "warp", "combine_in_block": true}}
; RUN: combine-in-block
; ERROR: kernel part: an axis occurs in two indices of M

; CASE: refused: not all parts
; INPUT: sums.ma
; EDIT: \n    %t = ld.global T[c, r, d] vec 1 : f32[c: 4, d: 32] #all\n => \n    %t = ld.global T[c, r, d] vec 1 : f32[c: 2, d: 32] #two\n
; EDIT: \n    layout #c = => \n    layout #two = reg(c:2x1) lane(d:32x1) warp(*:4)\n    layout #c =
; PLAN: part {"mapping": {"engine": "warp", "combine_in_block": true}}
; RUN: combine-in-block
; ERROR: kernel part: T does not hold one partial result per consumer

; CASE: refused: one part
; INPUT: sums.ma
; EDIT: \n    %m = ld.global M[c, r] vec 1 : f32[c: 4] #c\n => \n    %m = ld.global M[0, r] vec 1 : f32[] #one\n
; EDIT: reduce max %m over c : f32 => add %m, %m : f32
; PLAN: part {"mapping": {"engine": "warp", "combine_in_block": true}}
; RUN: combine-in-block
; ERROR: kernel part: a block reads another part of M than its consumers write

; CASE: refused: fewer rows
; INPUT: sums.ma
; EDIT: T[c, b, d], %sum => T[c, b, z], %few
; EDIT: \n    %sum = reduce sum %y => \n    %few = const 0.0 : f32[z: 16] #z\n    %sum = reduce sum %y
; EDIT: \n    smem s : => \n    layout #z = reg() lane(z:16x1, *:2) warp()\n    smem s :
; PLAN: part {"mapping": {"engine": "warp", "combine_in_block": true}}
; RUN: combine-in-block
; ERROR: kernel part: 16 rows of T are written, but 32 are read

; CASE: refused: another part
; INPUT: sums.ma
; EDIT: M[c, r] => M[c, 1 - r]
; PLAN: part {"mapping": {"engine": "warp", "combine_in_block": true}}
; RUN: combine-in-block
; ERROR: kernel part: a block reads another part of M than its consumers write

; CASE: refused: a variable of the kernel's own
; INPUT: sums.ma
; EDIT: \n    st.global T[c, b, d], %sum vec 1\n => \n    let q = b * 1\n    let p = 0 * b\n    st.global T[c, q + p, d], %sum vec 1\n
; PLAN: part {"mapping": {"engine": "warp", "combine_in_block": true}}
; RUN: combine-in-block
; ERROR: kernel part: the position of T depends on p

; CASE: refused: unknown
; INPUT: sums.ma
; EDIT: let b = block % 2 => let b = block % 2\n    let z = block // 4
; PLAN: part {"mapping": {"engine": "warp", "combine_in_block": true}}
; RUN: combine-in-block
; ERROR: kernel part: no partial result determines grid variable z

; CASE: refused: other blocks
; INPUT: sums.ma
; EDIT: let r = block => let r = 0
; PLAN: part {"mapping": {"engine": "warp", "combine_in_block": true}}
; RUN: combine-in-block
; ERROR: kernel part: its blocks are not the consumers of the blocks that read them

; CASE: refused: shared memory
; INPUT: sums.ma
; EDIT: stages 1 swizzle 0 pad 0 @ 0 => stages 31 swizzle 0 pad 0 @ 0
; PLAN: part {"mapping": {"engine": "warp", "combine_in_block": true}}
; RUN: combine-in-block
; ERROR: kernel whole: 254480 bytes of shared memory are needed, but a block may have 232448 (s 253952, part_T 512, parts_T 512, part_M 16, parts_M 16)

; CASE: refused: no kernel reads an output
; INPUT: sums.ma
; PLAN: whole {"mapping": {"engine": "warp", "combine_in_block": true}}
; RUN: combine-in-block
; ERROR: kernel whole: join: its results are not read by one other kernel alone
