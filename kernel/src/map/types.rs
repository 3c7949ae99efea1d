//! Types of keys and values, as the kernel keeps them beside a map.

use twinbpf_btf::{Btf, Endian, TypeId};

use super::Map;
use crate::error::Error;

/// What keys and values of a map are.
#[derive(Debug)]
pub struct MapTypes {
    /// The types of the object that the map came from.
    pub btf: Btf,
    /// The key's; data sections have none.
    pub key: Option<TypeId>,
    /// BTF type of the value.
    pub value: Option<TypeId>,
}

impl Map {
    /// The types that the map's creator gave the kernel (`BPF_BTF_GET_FD_BY_ID`); `None` if it gave none.
    ///
    /// # Errors
    /// The kernel's, or its bytes are no BTF.
    pub fn types(&self) -> Result<Option<MapTypes>, Error> {
        let info = self.info();
        if info.btf_id == 0 {
            return Ok(None);
        }
        let bytes = crate::btf::bytes_of(info.btf_id)?;
        let endian = if cfg!(target_endian = "little") { Endian::Little } else { Endian::Big };
        let subject = format!("types {}", info.btf_id);
        let btf = Btf::parse(&bytes, endian)
            .map_err(|error| Error::ours("OBJ_GET_INFO_BY_FD", &subject, libc::EINVAL, error.to_string()))?;
        let some = |id: u32| (id != 0).then_some(TypeId(id));
        Ok(Some(MapTypes { btf, key: some(info.btf_key), value: some(info.btf_value) }))
    }
}
