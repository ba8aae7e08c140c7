//! What kind of archive this is, and where in it the programs and tables stand.
//!
//! Entry names are those of torch's pt2_archive; everything below the top folder is looked up by
//! its exact name. Kinds of file that only resemble a .pt2 are refused here, by name.

use super::archive::{Archive, EntryId};
use super::{damaged, unsupported};
use crate::base::{Error, Result};

/// The next step for every file that needs to be written anew.
pub(super) const EXPORT_AGAIN: &str = "export the model again with torch 2.9 or newer: \
     torch.export.save(torch.export.export(model, args), \"model.pt2\")";

const MODELS_DIR: &str = "models/";

/// A recognised .pt2 archive.
#[derive(Debug)]
pub(super) struct Layout {
    /// The top folder with its slash; empty if the archive has none.
    prefix: String,
    /// Names of the programs, in the order of the archive.
    pub methods: Vec<String>,
}

impl Layout {
    /// Recognises the archive, or refuses it by what it is.
    pub(super) fn recognise(archive: &Archive) -> Result<Self> {
        refuse_older_layout(archive)?;
        let prefix = find_prefix(archive)?;
        let layout = Self { methods: Vec::new(), prefix };
        layout.check_markers(archive)?;
        let methods = layout.find_methods(archive);
        if methods.is_empty() {
            return Err(layout.why_no_methods(archive));
        }
        for method in &methods {
            let pickled = format!("data/weights/{method}.pt");
            if layout.find(archive, &pickled).is_some() {
                return Err(unsupported(
                    format!("the weights of `{method}` are a pickle, as torch 2.8 and older write it"),
                    EXPORT_AGAIN,
                ));
            }
        }
        Ok(Self { methods, ..layout })
    }

    /// Entry below the top folder.
    pub(super) fn find(&self, archive: &Archive, name: &str) -> Option<EntryId> {
        archive.find(&format!("{}{name}", self.prefix))
    }

    /// Program of a method.
    pub(super) fn program(&self, method: &str) -> String {
        format!("{MODELS_DIR}{method}.json")
    }

    /// Table of a method's parameters and persistent buffers.
    pub(super) fn weights(&self, method: &str) -> Table {
        let config = format!("data/weights/{method}_weights_config.json");
        Table { config, folder: "data/weights/", file_prefix: "weight_" }
    }

    /// Table of a method's lifted constants and non-persistent buffers.
    pub(super) fn constants(&self, method: &str) -> Table {
        let config = format!("data/constants/{method}_constants_config.json");
        Table { config, folder: "data/constants/", file_prefix: "tensor_" }
    }

    fn check_markers(&self, archive: &Archive) -> Result<()> {
        let format = self.marker(archive, "archive_format")?.unwrap_or_default();
        if format != "pt2" {
            return Err(unsupported(
                format!("the archive's format is {format:?}, not \"pt2\""),
                EXPORT_AGAIN,
            ));
        }
        match self.marker(archive, "byteorder")?.as_deref() {
            None | Some("little") => {}
            Some(order) => {
                return Err(unsupported(
                    format!("the archive's byte order is {order:?}, only little-endian files are read"),
                    "export the model on a little-endian machine",
                ));
            }
        }
        match self.marker(archive, "archive_version")?.as_deref() {
            None | Some("0") => Ok(()),
            Some(version) => Err(unsupported(
                format!("the archive has version {version:?} of the pt2 format, this reader knows version 0"),
                "update vkdelegate, or export with torch 2.9 to 2.15",
            )),
        }
    }

    /// Text of a small marker entry.
    fn marker(&self, archive: &Archive, name: &str) -> Result<Option<String>> {
        const MAX_MARKER_BYTES: usize = 64;
        let Some(id) = self.find(archive, name) else { return Ok(None) };
        if archive.size_bytes(id) > MAX_MARKER_BYTES {
            return Err(damaged(name, "it should be one word"));
        }
        let text = String::from_utf8_lossy(&archive.read(id)?).trim().to_owned();
        Ok(Some(text))
    }

    fn find_methods(&self, archive: &Archive) -> Vec<String> {
        let below = |name: &str| {
            let path = name.strip_prefix(&self.prefix)?.strip_prefix(MODELS_DIR)?;
            path.strip_suffix(".json").filter(|method| !method.is_empty()).map(str::to_owned)
        };
        archive.names().filter_map(below).collect()
    }

    fn why_no_methods(&self, archive: &Archive) -> Error {
        let compiled = format!("{}data/aotinductor/", self.prefix);
        if archive.names().any(|name| name.starts_with(&compiled)) {
            return unsupported("this is an AOTInductor package: compiled code, no graph", EXPORT_AGAIN);
        }
        unsupported("the archive holds no program (no models/NAME.json)", EXPORT_AGAIN)
    }
}

/// Where one kind of stored tensor is listed, and where its payloads are.
#[derive(Debug)]
pub(super) struct Table {
    /// Entry of the table.
    pub config: String,
    /// Folder of the payloads.
    pub folder: &'static str,
    /// How the file name of a payload of this kind begins; other kinds are pickles.
    pub file_prefix: &'static str,
}

/// The folder of `archive_format`, which is the top folder or the archive itself.
fn find_prefix(archive: &Archive) -> Result<String> {
    let mut prefixes = archive.names().filter_map(|name| {
        let prefix = name.strip_suffix("archive_format")?;
        let is_top = prefix.is_empty() || prefix.find('/') == Some(prefix.len() - 1);
        is_top.then(|| prefix.to_owned())
    });
    match (prefixes.next(), prefixes.next()) {
        (Some(prefix), None) => Ok(prefix),
        (Some(_), Some(_)) => Err(damaged("archive", "it has two top folders with an archive_format")),
        (None, _) => Err(why_no_format(archive)),
    }
}

fn has_file(archive: &Archive, file: &str) -> bool {
    archive.names().any(|name| name.rsplit('/').next() == Some(file))
}

fn why_no_format(archive: &Archive) -> Error {
    let what = if has_file(archive, "constants.pkl") {
        "this is a TorchScript archive (torch.jit.save)"
    } else if has_file(archive, "data.pkl") {
        "this is a pickled checkpoint (torch.save), which holds no graph"
    } else {
        "this zip archive is not a .pt2 file (it has no archive_format)"
    };
    unsupported(what, EXPORT_AGAIN)
}

fn refuse_older_layout(archive: &Archive) -> Result<()> {
    if has_file(archive, "serialized_exported_program.json") {
        let what = "this .pt2 has the older layout of torch 2.8 and before, with pickled weights";
        return Err(unsupported(what, EXPORT_AGAIN));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::import::testing::{ZipEntry, zip};

    fn recognise(entries: &[(&str, &str)]) -> Result<Layout> {
        let entries: Vec<_> = entries.iter().map(|(n, d)| ZipEntry::stored(n, d.as_bytes())).collect();
        Layout::recognise(&Archive::from_bytes(zip(&entries).into())?)
    }

    fn refusal(entries: &[(&str, &str)]) -> String {
        recognise(entries).expect_err("must be refused").to_string()
    }

    #[test]
    fn methods_are_found_below_the_top_folder() {
        let layout = recognise(&[
            ("m/models/base.json", "{}"),
            ("m/models/lora.json", "{}"),
            ("other/models/x.json", "{}"),
            ("m/archive_format", "pt2"),
            ("m/archive_version", "0\n"),
            ("m/byteorder", "little"),
        ]);
        assert_eq!(layout.unwrap().methods, ["base", "lora"]);
        assert_eq!(recognise(&[("models/a.json", ""), ("archive_format", "pt2")]).unwrap().methods, ["a"]);
    }

    #[test]
    fn other_kinds_are_refused_by_name() {
        let model = ("m/models/a.json", "{}");
        let format = ("m/archive_format", "pt2");
        for (entries, expected) in [
            (&[("serialized_exported_program.json", "{}")][..], "older layout"),
            (&[("m/code/x.py", ""), ("m/constants.pkl", "")], "TorchScript"),
            (&[("m/data.pkl", "")], "torch.save"),
            (&[("a/b/archive_format", "pt2"), model], "not a .pt2"),
            (&[("m/archive_format", "pte"), model], "not \"pt2\""),
            (&[format, model, ("m/byteorder", "big")], "little-endian"),
            (&[format, model, ("m/archive_version", "1")], "version \"1\""),
            (&[format, model, ("m/data/weights/a.pt", "")], "a pickle"),
            (&[format, ("m/data/aotinductor/a/x.so", "")], "AOTInductor"),
            (&[format], "no program"),
            (&[format, model, ("n/archive_format", "pt2")], "two top folders"),
        ] {
            let text = refusal(entries);
            assert!(text.contains(expected), "{text}");
        }
    }
}
