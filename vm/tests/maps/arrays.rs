//! Arrays have no locks: words that are aligned are whole all the same.

use twinbpf_vm::map::{BPF_ANY, MapKind};

use crate::{hammer, make, spec};

#[test]
fn aligned_words_are_whole() {
    const SIZES: [usize; 8] = [4, 8, 12, 24, 42, 64, 4096, 10_000];
    let maps = SIZES.map(|size| make(spec(MapKind::Array, 4, size as u32, 2)));
    hammer(|thread, round, random| {
        let which = random.below(SIZES.len() as u64) as usize;
        let (map, size) = (&maps[which], SIZES[which]);
        let key = (random.below(2) as u32).to_le_bytes();
        // Each word has one byte eight times. The last word is as long as the size leaves it.
        if thread % 2 == 0 {
            map.update(&key, &vec![round as u8; size], BPF_ANY, 0).unwrap();
            return;
        }
        let mut value = vec![0; size];
        map.lookup_copy(&key, 0, &mut value).unwrap();
        let torn = value.chunks(8).find(|word| word.iter().any(|byte| *byte != word[0]));
        assert_eq!(torn, None, "{size} bytes");
    });
}
