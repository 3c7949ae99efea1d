//! Types one after the other, as they are: in bpftool's notation, and as JSON with its keys.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use twinbpf_btf::{Btf, Composite, Enum, Int, Linkage, Type, TypeId};

/// Keys with their values, in order.
type Fields = Vec<(&'static str, Value)>;

/// One type: its own fields, and those of the parts it has, under their name.
struct Record {
    kind: &'static str,
    fields: Fields,
    parts: Option<(&'static str, Vec<Fields>)>,
}

/// The ids to be printed.
fn ids(btf: &Btf, roots: Option<&[TypeId]>) -> Vec<TypeId> {
    roots.map_or_else(|| btf.ids().collect(), <[TypeId]>::to_vec)
}

/// Every type, or only `roots`, in lines.
pub(super) fn text(btf: &Btf, roots: Option<&[TypeId]>) -> String {
    let mut text = String::new();
    for id in ids(btf, roots) {
        let Some(record) = record(btf, id) else { continue };
        _ = write!(text, "[{}] {} '{}'", id.0, record.kind, named(btf.name(id)));
        let is_var = record.kind == "VAR";
        for (index, (key, value)) in record.fields.iter().enumerate() {
            let comma = if is_var && index == 1 { "," } else { "" };
            _ = write!(text, "{comma} {key}={}", bare(value));
        }
        for part in record.parts.iter().flat_map(|(_, parts)| parts) {
            text.push_str("\n\t");
            let words = part.iter().map(|(key, value)| match *key {
                "name" => format!("'{}'", bare(value)),
                "val" if record.kind == "ENUM64" => {
                    format!("val={}{}", bare(value), if value.is_i64() && !value.is_u64() { "LL" } else { "ULL" })
                }
                _ => format!("{key}={}", bare(value)),
            });
            text.push_str(&words.collect::<Vec<_>>().join(" "));
            if record.kind == "DATASEC" {
                text.push_str(&variable(btf, part));
            }
        }
        text.push('\n');
    }
    text
}

/// The same as one JSON object.
pub(super) fn json(btf: &Btf, roots: Option<&[TypeId]>) -> String {
    let object =
        |fields: Fields| Value::Object(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect());
    let types = ids(btf, roots).into_iter().filter_map(|id| {
        let record = record(btf, id)?;
        let mut all = Map::new();
        all.insert("id".to_owned(), json!(id.0));
        all.insert("kind".to_owned(), json!(record.kind));
        all.insert("name".to_owned(), json!(named(btf.name(id))));
        all.extend(record.fields.into_iter().map(|(key, value)| (key.to_owned(), value)));
        if let Some((name, parts)) = record.parts {
            all.insert(name.to_owned(), parts.into_iter().map(object).collect());
        }
        Some(Value::Object(all))
    });
    let mut text = json!({ "types": types.collect::<Vec<_>>() }).to_string();
    text.push('\n');
    text
}

fn named(name: &str) -> &str {
    if name.is_empty() { "(anon)" } else { name }
}

fn bare(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// What a section's entry is.
fn variable(btf: &Btf, part: &Fields) -> String {
    let id = part.iter().find(|(key, _)| *key == "type_id").and_then(|(_, value)| value.as_u64()).unwrap_or(0);
    let id = TypeId(u32::try_from(id).unwrap_or(0));
    let kind = match btf.type_by_id(id) {
        Some(Type::Var { .. }) => "VAR",
        Some(Type::Func { .. }) => "FUNC",
        _other => return String::new(),
    };
    format!(" ({kind} '{}')", named(btf.name(id)))
}

fn record(btf: &Btf, id: TypeId) -> Option<Record> {
    let plain = |kind, fields| Record { kind, fields, parts: None };
    let target = |kind, to: TypeId| plain(kind, vec![("type_id", json!(to.0))]);
    Some(match btf.type_by_id(id)? {
        Type::Void => return None,
        Type::Int(int) => plain("INT", integer(int)),
        Type::Ptr(to) => target("PTR", to),
        Type::Array(array) => {
            let fields = [("type_id", array.elem.0), ("index_type_id", array.index.0), ("nr_elems", array.len)];
            plain("ARRAY", fields.into_iter().map(|(key, value)| (key, json!(value))).collect())
        }
        Type::Struct(found) => composite("STRUCT", &found),
        Type::Union(found) => composite("UNION", &found),
        Type::Enum(found) => enumeration("ENUM", &found),
        Type::Enum64(found) => enumeration("ENUM64", &found),
        Type::Fwd { is_union } => plain("FWD", vec![("fwd_kind", json!(if is_union { "union" } else { "struct" }))]),
        Type::Typedef(to) => target("TYPEDEF", to),
        Type::Volatile(to) => target("VOLATILE", to),
        Type::Const(to) => target("CONST", to),
        Type::Restrict(to) => target("RESTRICT", to),
        Type::TypeTag(to) => target("TYPE_TAG", to),
        Type::Func { proto, linkage } => linked("FUNC", proto, linkage),
        Type::Var { type_id, linkage } => linked("VAR", type_id, linkage),
        Type::Float { size } => plain("FLOAT", vec![("size", json!(size))]),
        Type::DeclTag { target, component } => {
            plain("DECL_TAG", vec![("type_id", json!(target.0)), ("component_idx", json!(component))])
        }
        Type::FuncProto(proto) => {
            let params = proto.params().map(|param| (param.name, param.type_id.0));
            let params = params.chain(proto.is_variadic().then_some(("", 0)));
            let params = params.map(|(name, id)| vec![("name", json!(named(name))), ("type_id", json!(id))]);
            let params: Vec<Fields> = params.collect();
            let fields = vec![("ret_type_id", json!(proto.result.0)), ("vlen", json!(params.len()))];
            Record { kind: "FUNC_PROTO", fields, parts: Some(("params", params)) }
        }
        Type::Datasec(found) => {
            let vars = found.vars().map(|var| {
                vec![("type_id", json!(var.var_id.0)), ("offset", json!(var.offset)), ("size", json!(var.size))]
            });
            let vars: Vec<Fields> = vars.collect();
            let fields = vec![("size", json!(found.size)), ("vlen", json!(vars.len()))];
            Record { kind: "DATASEC", fields, parts: Some(("vars", vars)) }
        }
    })
}

fn integer(int: Int) -> Fields {
    let encoding = match int {
        Int { signed: true, .. } => "SIGNED",
        Int { is_char: true, .. } => "CHAR",
        Int { is_bool: true, .. } => "BOOL",
        Int { .. } => "(none)",
    };
    vec![
        ("size", json!(int.size)),
        ("bits_offset", json!(int.bit_offset)),
        ("nr_bits", json!(int.bits)),
        ("encoding", json!(encoding)),
    ]
}

fn composite(kind: &'static str, found: &Composite<'_>) -> Record {
    let members = found.members().map(|member| {
        let mut fields = vec![
            ("name", json!(named(member.name))),
            ("type_id", json!(member.type_id.0)),
            ("bits_offset", json!(member.bit_offset)),
        ];
        if member.bits != 0 {
            fields.push(("bitfield_size", json!(member.bits)));
        }
        fields
    });
    let fields = vec![("size", json!(found.size)), ("vlen", json!(found.len()))];
    Record { kind, fields, parts: Some(("members", members.collect())) }
}

fn enumeration(kind: &'static str, found: &Enum<'_>) -> Record {
    let value = |value: i128| match u64::try_from(value) {
        Ok(value) if !found.signed => json!(value),
        _ => json!(value as i64),
    };
    let values = found.enumerators().map(|e| vec![("name", json!(named(e.name))), ("val", value(e.value))]);
    let encoding = if found.signed { "SIGNED" } else { "UNSIGNED" };
    let fields = vec![("encoding", json!(encoding)), ("size", json!(found.size)), ("vlen", json!(found.len()))];
    Record { kind, fields, parts: Some(("values", values.collect())) }
}

fn linked(kind: &'static str, to: TypeId, linkage: Linkage) -> Record {
    let linkage = match linkage {
        Linkage::Static => "static",
        Linkage::Global => "global",
        Linkage::Extern => "extern",
    };
    Record { kind, fields: vec![("type_id", json!(to.0)), ("linkage", json!(linkage))], parts: None }
}
