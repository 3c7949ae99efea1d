//! Checksum of everything in an image that compiled code depends on.

use std::hash::{Hash as _, Hasher as _};

use twinbpf_vm::digest::Digest;
use twinbpf_vm::image::{Image, Link};

use super::Values;

/// Instructions, what they refer to, and how functions lie; not the addresses of this process.
pub(super) fn sum(image: &Image, values: &Values) -> u128 {
    let mut sum = Digest::default();
    image.insns().hash(&mut sum);
    for (pc, link) in image.links().iter().enumerate() {
        let (kind, number) = match *link {
            Link::None => (0, 0),
            Link::Value(value) => match values.index(pc as u32) {
                Some(index) => (1, u64::from(index)),
                None => (2, value),
            },
            Link::Function(function) => (3, function.into()),
            Link::Host(host) => (4, host.into()),
            Link::TailCall => (5, 0),
            Link::Trap(trap) => (6, trap.into()),
        };
        sum.write_u8(kind);
        sum.write_u64(number);
    }
    for function in image.functions() {
        [function.program, function.start, function.end, function.stack_size].hash(&mut sum);
    }
    for host in image.hosts() {
        sum.write_u8(host.native().1);
    }
    image.labels().for_each(|label| label.hash(&mut sum));
    sum.value()
}
