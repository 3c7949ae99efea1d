//! Maps that an object is given in place of its own are what it declares, and in memory that its programs reach.

use std::sync::Arc;

use twinbpf::{Config, Engine, ErrorKind, InstancePre, Linker, Object};

fn object(name: &str) -> Object {
    let bytes = std::fs::read(format!("corpus/{name}.bpf.o")).expect("an object of the corpus");
    Object::open(name, &bytes).expect("an object")
}

fn engine() -> Engine {
    Engine::new(Config::new()).expect("an engine")
}

fn pre(engine: &Engine, object: &Object) -> InstancePre<()> {
    Linker::new(engine).instantiate_pre(object).expect("it links")
}

/// Why an object is not given the map of another with the same name.
fn refused(engine: &Engine, from: &InstancePre<()>, object: &Object, map: &str) -> String {
    let mut linker = Linker::<()>::new(engine);
    linker.map(map, Arc::clone(from.map_ops(map).expect("the object has it")));
    match linker.instantiate_pre(object) {
        Ok(_) => "it was given".to_owned(),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Map);
            error.to_string()
        }
    }
}

#[test]
fn a_map_is_what_the_object_declares() {
    let (engine, script) = (engine(), object("scripts/foreach"));
    let from = pre(&engine, &script);
    assert_eq!(refused(&engine, &from, &script, "numbers"), "it was given");
    let index = script.map("numbers").expect("the object has it");
    type Change = fn(&mut twinbpf_vm::map::MapSpec);
    let changes: [(Change, &str); 5] = [
        (|spec| spec.kind = twinbpf_vm::map::MapKind::Hash, "is of type array, but is declared as hash"),
        (
            |spec| (spec.kind, spec.key_size) = (twinbpf_vm::map::MapKind::Hash, 8),
            "is of type array, but is declared as hash",
        ),
        (|spec| spec.value_size = 64, "has value_size 4, but is declared with 64"),
        (|spec| spec.max_entries += 1, "has max_entries 6, but is declared with 7"),
        (|spec| spec.flags |= 1 << 3, "has map_flags 0, but is declared with 8"),
    ];
    for (change, why) in changes {
        let mut declared = script.clone();
        change(&mut declared.maps[index]);
        let error = refused(&engine, &from, &declared, "numbers");
        assert!(error.contains("map numbers: the map that is given in its place ") && error.contains(why), "{error}");
    }
}

#[test]
fn a_map_is_of_the_same_engine() {
    let script = object("scripts/foreach");
    let error = refused(&engine(), &pre(&engine(), &script), &script, "numbers");
    assert!(error.contains("lies in the memory of another engine; make both with one engine"), "{error}");
}

/// What their slots have, only the object that they were made for knows.
#[test]
fn programs_and_inner_maps_are_not_shared() {
    let engine = engine();
    for (name, map, why) in [
        ("packets/xdp_tail", "jump", "has programs of the object that it was made for"),
        ("maps/nested", "by_index", "has maps that only programs of the object that it was made for know"),
        ("maps/nested", "by_number", "has maps that only programs of the object that it was made for know"),
    ] {
        let object = object(name);
        let error = refused(&engine, &pre(&engine, &object), &object, map);
        assert!(error.contains(why), "{error}");
    }
}
