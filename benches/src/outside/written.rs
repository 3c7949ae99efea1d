//! Workloads that are written from public specifications: `corpus/outside`.

use std::path::PathBuf;

use twinbpf::Object;

use super::inputs::{self, WHOLE};
use crate::workload::{corpus, corpus_object};

/// One of them.
pub(super) struct Written {
    /// File name in `corpus/outside`, without extension.
    pub(super) name: &'static str,
    /// Work of one run, in its own unit, or [`WHOLE`].
    len: u64,
    shape: fn(&mut [u8]),
    /// What native code returns, and a second implementation where there is one.
    pub(super) expected: u64,
}

impl Written {
    /// The block of each run.
    pub(super) fn block(&self) -> Vec<u8> {
        inputs::block(self.len, self.shape)
    }

    /// The C source.
    pub(super) fn path(&self) -> PathBuf {
        corpus().join(format!("outside/{}.bpf.c", self.name))
    }

    /// The object beside it.
    pub(super) fn object(&self) -> Result<Object, String> {
        corpus_object(&format!("outside/{}.bpf.o", self.name))
    }
}

const fn written(name: &'static str, len: u64, shape: fn(&mut [u8]), expected: u64) -> Written {
    Written { name, len, shape, expected }
}

/// All, by what they do.
pub(super) const WRITTEN: &[Written] = &[
    written("adler32", 32768, inputs::noise, 0x62d9_bcb8),
    written("crc32", 16384, inputs::noise, 0x4cea_382f),
    written("xxhash64", 65536, inputs::noise, 0x9047_dc92_110a_e605),
    written("murmur3", 16384, inputs::noise, 0xd1a5_2bfd_f725_abc5),
    written("md5", 16384, inputs::noise, 0x2566_99a7_327c_19c5),
    written("sha1", 16384, inputs::noise, 0x23b1_525c_bbfb_e501),
    written("sha512", 16384, inputs::noise, 0x1a42_4d0d_d463_0ac0),
    written("blake2s", 16384, inputs::noise, 0x776d_9cb4_e202_631d),
    written("aes128", 4096, inputs::noise, 0x10e8_9f15_7609_c68e),
    written("poly1305", 16384, inputs::noise, 0x418f_eb49_7837_1046),
    written("x25519", 64, inputs::noise, 0x675d_b61e_549b_316d),
    written("modexp", 8, inputs::noise, 0x99a5_f45f_cd5e_bc54),
    written("bigmul", 300, inputs::noise, 0x132_0000_09a2),
    written("quicksort", 2048, inputs::noise, 0xa7e4_9396_7290_514f),
    written("mergesort", 2048, inputs::noise, 0x3d42_5d50_10f7_2430),
    written("radixsort", 2048, inputs::noise, 0xa7e4_9396_7290_514f),
    written("inflate", WHOLE, inputs::deflated, 0xb5d0_cce2_3c28_9704),
    written("lzss", 8192, inputs::text, 0x110d_ec36_a2c9_2bfd),
    written("huffman", 8192, inputs::text, 0x5e01_cf33_14de_db06),
    written("base64", 12288, inputs::noise, 0x6718_91dd_8535_d612),
    written("qoi", 4096, inputs::pixels, 0x35cf_85e1_560b_7e74),
    written("adpcm", 8192, inputs::noise, 0xaa32_649f_841c_281d),
    written("dct8x8", 64, inputs::noise, 0xcf4d_b740_46fd_4d48),
    written("regexback", 4096, inputs::text, 0xaf6_444f_aa2c_5f0b),
    written("regexnfa", 2048, inputs::text, 0x6a_001f_000c_0009),
    written("csv", 16384, inputs::csv, 0x4d9a_d3a4_fd67_669f),
    written("http", WHOLE, inputs::http, 0xeb3d_618d_2b04_58e6),
    written("dns", 256, inputs::dns, 0x58e7_4b01_d34a_19f3),
    written("shunting", WHOLE, inputs::formulas, 0x685e_43ec_dd40_5f8b),
    written("brainfuck", 1 << 30, inputs::brainfuck, 0xd1e2_bd54_80e7_ec71),
    written("rbtree", 2000, inputs::noise, 0x2fff_3876_4353_ebbb),
    written("skiplist", 1000, inputs::noise, 0x5c1_630c_f778_3db6),
    written("lpmtrie", 500, inputs::noise, 0x6244_be1d_954b_6977),
    written("bloom", 4000, inputs::noise, 0xc_0000_3790),
    written("cuckoo", 1500, inputs::noise, 0x7e4f_e6a2_b9b6_1a32),
    written("levenshtein", 200, inputs::words, 0x8d67_5139_5271_b20a),
    written("life", 8, inputs::noise, 0x9b00_c2c8_ddbd_3362),
    written("nqueens", 7, inputs::noise, 0x28),
    written("mandelbrot", 48, inputs::noise, 0x33c5_7418_7e83_6f62),
    written("dijkstra", 48, inputs::noise, 0x1b4_0000_0900),
    written("maglev", 100, inputs::noise, 0xe133_9e6e_c12c_00aa),
    written("firewall", 512, inputs::frames, 0xd59f_9ed6_85f0_21fa),
    written("sobel", 96, inputs::noise, 0xf9f6_a459_ba98_59a1),
    written("fir", 8192, inputs::noise, 0x74f5_05d3_efa0_642f),
    written("sha3", 8192, inputs::noise, 0x6ffb_de31_979f_cef9),
    written("bigdiv", 64, inputs::digits, 0xdd8e_9dd5_4d9f_71c2),
    written("ahocorasick", WHOLE, inputs::sought, 0x915_5127_8c39_9275),
    written("bwt", 1024, inputs::text, 0x63f6_1998_f916_3810),
    written("rangecoder", 1024, inputs::text, 0x81cc_6f4f_a2c8_4983),
    written("reedsolomon", 3, inputs::messages, 0x7332_a94a_0a1f_71f8),
    written("kdtree", 512, inputs::noise, 0x4f12_7366_11d1_8896),
    written("forth", WHOLE, inputs::forth, 0x5fee_48d2_649d_8c3f),
    written("der", 64, inputs::certificates, 0x1839_0248_aedd_399d),
    written("logformat", 200, inputs::records, 0xe992_0668_e902_9dff),
];
