use super::*;

#[test]
fn subprograms_keep_r6_to_r9_and_have_frames_of_their_own() {
    let rig = Rig::with(
        "r6 = 6
         r9 = 9
         *(u64 *)(r10 - 8) = 1
         r1 = 5
         call f
         r1 = *(u64 *)(r10 - 8)
         r0 += r6
         r0 += r9
         r0 += r1
         exit
         f: r6 = 100
         r9 = r1
         *(u64 *)(r10 - 8) = 77
         r0 = r9
         exit",
    );
    assert_eq!(run(&rig, [0; 5]).unwrap(), 21);
}
