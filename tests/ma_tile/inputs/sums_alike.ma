module sums target sm_90a {
  input X: f32[2, 64, 32]
  temp T: f32[4, 2, 32]
  temp M: f32[4, 2]
  output Y: f32[2, 32]
  kernel part grid 8 warps 1 min_blocks 1 {
    let c = block // 2
    let b = block % 2
    layout #in = reg(r:16x1) lane(d:32x1) warp()
    layout #d = reg() lane(d:32x1) warp()
    layout #one = reg() lane(*:32) warp()
    smem s : f32[r: 16, d: 32] stages 1 swizzle 0 pad 0 @ 0
    %x = ld.global X[b, c * 16 + r, d] vec 1 : f32[r: 16, d: 32] #in
    st.shared s[0], %x vec 1
    barrier
    %y = ld.shared s[0] vec 1 : f32[r: 16, d: 32] #in
    %sum = reduce sum %y over r : f32[d: 32] #d
    %most = reduce max %y over r, d : f32 #one
    st.global T[c, b, d], %sum vec 1
    st.global M[c, b], %most vec 1
  }
  kernel whole grid 2 warps 1 min_blocks 1 {
    let r = block
    layout #all = reg(c:4x1) lane(d:32x1) warp()
    layout #d = reg() lane(d:32x1) warp()
    layout #c = reg(c:4x1) lane(*:32) warp()
    layout #one = reg() lane(*:32) warp()
    %t = ld.global T[c, r, d] vec 1 : f32[c: 4, d: 32] #all
    %m = ld.global M[c, r] vec 1 : f32[c: 4] #c
    %sum = reduce sum %t over c : f32[d: 32] #d
    %most = reduce max %m over c : f32 #one
    %y = add %sum, %most : f32[d: 32] #d
    st.global Y[r, d], %y vec 1
  }
}
