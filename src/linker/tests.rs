//! Native code, as the linker has it made.

use super::*;
use crate::{Config, EngineKind};

#[test]
fn hot_programs_are_compiled_where_they_are_found_if_no_thread_may() {
    let config = Config::new().engine(EngineKind::Auto).parallel_compilation(false);
    let engine = Engine::new(config).expect("address space");
    let object = Object::open("double.bpf.o", include_bytes!("../../corpus/embed/double.bpf.o")).expect("an object");
    let mut linker = Linker::<()>::new(&engine);
    linker.func("report", |_: u64| ());
    let pre = linker.instantiate_pre(&object).expect("it links");
    let code = native::native(&engine, pre.image()).expect("it is allowed").expect("there is a compiler");
    let start = pre.image().functions()[0].start;
    assert_eq!(code.entry(0), None);
    code.report_hot(start);
    let first = code.entry(0).expect("code of the first tier");
    assert!(!code.is_final(0));
    (0..20).for_each(|_| code.report_hot(start));
    assert!(code.is_final(0));
    assert_ne!(code.entry(0), Some(first));
}
