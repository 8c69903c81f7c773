; Loads that follow the steps of a loop forwards, backwards, and otherwise.
module t target sm_90a {
  input X: f32[32, 32]
  input N: f32[]
  output Y: f32[32, 32]
  kernel k grid 1 warps 1 min_blocks 1 {
    layout #i = reg() lane(i:32x1) warp()
    layout #one = reg() lane(*:32) warp()
    %zero = const 0.0 : f32[i: 32] #i
    %last = for t in 0..32 carry(%h = %zero) {
      %x0 = ld.global X[i, t] vec 1 : f32[i: 32] #i
      %x1 = ld.global X[i, t + 3] vec 1 : f32[i: 32] #i
      %x2 = ld.global X[i, 31 - t] vec 1 : f32[i: 32] #i
      %x3 = ld.global X[i, 2 * t] vec 1 : f32[i: 32] #i
      %x4 = ld.global X[i, i] vec 1 : f32[i: 32] #i
      %x5 = ld.global X[i, t // 2] vec 1 : f32[i: 32] #i
      %x6 = ld.global X[i, t + t // 2] vec 1 : f32[i: 32] #i
      %x7 = ld.global X[t, t] vec 1 : f32 #one
      %x8 = ld.global X[t, i] vec 1 : f32[i: 32] #i
      %x9 = ld.global N[] vec 1 : f32 #one
      yield %h
    }
  }
}
