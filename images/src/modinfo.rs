//! Kernel modules as files: what they depend on, and the order to load them in.
//!
//! Packages carry no modules.dep (depmod makes it when they are installed), but each module names its direct
//! dependencies in its `.modinfo` section.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use goblin::elf::Elf;

/// The modules a kernel has: as files, or built in.
pub struct Inventory<'a> {
    /// Finds the decompressed file of a module by its canonical name.
    pub file: &'a dyn Fn(&str) -> Result<Option<Vec<u8>>>,
    /// The canonical names of what is built in.
    pub builtin: &'a BTreeSet<String>,
}

/// The canonical name of a module file or module: `kvm-amd.ko.xz` is `kvm_amd`.
pub fn canonical(file: &str) -> String {
    let base = file.rsplit('/').next().unwrap_or(file);
    base.split(".ko").next().unwrap_or(base).replace('-', "_")
}

/// The wanted modules and what they need, in an order in which they load. What is built in is left out.
pub fn load_order(wanted: &[&str], inventory: &Inventory<'_>) -> Result<Vec<(String, Vec<u8>)>> {
    let mut state = Ordering { inventory, placed: BTreeMap::new(), order: Vec::new() };
    for name in wanted {
        state.place(name)?;
    }
    Ok(state.order)
}

struct Ordering<'a> {
    inventory: &'a Inventory<'a>,
    /// False while a module's dependencies are being placed.
    placed: BTreeMap<String, bool>,
    order: Vec<(String, Vec<u8>)>,
}

impl Ordering<'_> {
    fn place(&mut self, name: &str) -> Result<()> {
        let name = canonical(name);
        match self.placed.get(&name) {
            Some(true) => return Ok(()),
            Some(false) => bail!("module {name} depends on itself"),
            None => {}
        }
        if self.inventory.builtin.contains(&name) {
            self.placed.insert(name, true);
            return Ok(());
        }
        let Some(file) = (self.inventory.file)(&name)? else {
            bail!("the kernel package has no module {name}, and it isn't built in");
        };
        self.placed.insert(name.clone(), false);
        for needed in dependencies(&file).with_context(|| format!("module {name}"))? {
            self.place(&needed)?;
        }
        self.placed.insert(name.clone(), true);
        self.order.push((name, file));
        Ok(())
    }
}

/// The direct dependencies a module file names.
fn dependencies(file: &[u8]) -> Result<Vec<String>> {
    let elf = Elf::parse(file).context("not an ELF file")?;
    let section =
        elf.section_headers.iter().find(|header| elf.shdr_strtab.get_at(header.sh_name) == Some(".modinfo"));
    let section = section.and_then(|header| file.get(header.file_range()?)).context("no .modinfo section")?;
    let entries = section.split(|&byte| byte == 0);
    let depends = entries.filter_map(|entry| std::str::from_utf8(entry).ok()?.strip_prefix("depends="));
    Ok(depends.flat_map(|list| list.split(',')).filter(|name| !name.is_empty()).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The least ELF file that carries a .modinfo section.
    fn module(depends: &str) -> Vec<u8> {
        let modinfo = format!("license=GPL\0depends={depends}\0");
        let names = b"\0.modinfo\0.shstrtab\0";
        let mut file = vec![0_u8; 64];
        file[..20].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x01\0\x3e\0");
        let sections = [(1_u32, 1_u32, modinfo.as_bytes()), (10, 3, names.as_slice())];
        let mut headers = vec![0_u8; 64];
        for (name, kind, bytes) in sections {
            let mut header = vec![0_u8; 64];
            header[0..4].copy_from_slice(&name.to_le_bytes());
            header[4..8].copy_from_slice(&kind.to_le_bytes());
            header[24..32].copy_from_slice(&(file.len() as u64).to_le_bytes());
            header[32..40].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
            headers.extend(header);
            file.extend(bytes);
        }
        let table = file.len() as u64;
        file.extend(headers);
        file[20] = 1;
        file[40..48].copy_from_slice(&table.to_le_bytes());
        for (at, value) in [(52, 64_u16), (58, 64), (60, 3), (62, 2)] {
            file[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        file
    }

    fn order(modules: &[(&str, &str)], builtin: &[&str], wanted: &[&str]) -> Result<Vec<String>> {
        let find =
            |name: &str| Ok(modules.iter().find(|(module, _)| *module == name).map(|(_, on)| module(on)));
        let builtin = builtin.iter().map(|name| canonical(name)).collect();
        let order = load_order(wanted, &Inventory { file: &find, builtin: &builtin })?;
        Ok(order.into_iter().map(|(name, _)| name).collect())
    }

    #[test]
    fn dependencies_come_first_and_once() {
        let modules =
            [("irqbypass", ""), ("kvm", "irqbypass"), ("ccp", ""), ("kvm_amd", "kvm,ccp"), ("msr", "")];
        assert_eq!(
            order(&modules, &[], &["kvm-amd", "kvm", "msr"]).unwrap(),
            ["irqbypass", "kvm", "ccp", "kvm_amd", "msr"]
        );
    }

    #[test]
    fn what_is_built_in_needs_no_file() {
        let modules = [("virtio_mmio", "virtio,virtio_ring")];
        let builtin = ["kernel/drivers/virtio/virtio.ko", "kernel/drivers/virtio/virtio_ring.ko"];
        assert_eq!(order(&modules, &builtin, &["virtio", "virtio_mmio"]).unwrap(), ["virtio_mmio"]);
    }

    #[test]
    fn what_is_missing_or_circular_is_an_error() {
        assert!(order(&[("a", "b")], &[], &["a"]).unwrap_err().to_string().contains("no module b"));
        assert!(order(&[("a", "b"), ("b", "a")], &[], &["a"]).unwrap_err().to_string().contains("itself"));
    }
}
