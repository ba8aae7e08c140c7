//! Makes the index and the bundle of one template, and holds its variants against each other.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::compile::{GlslCompiler, access_of};
use crate::header::{Header, point_text};
use crate::index::{
    HASH_SEED, Index, OPTIONS, OperandInfo, ParamInfo, PushLayout, VariantInfo, hash_bytes, source_hash,
    with_includes,
};
use crate::reflect::{Reflection, reflect};

/// What is committed for one template.
pub struct Made {
    index: String,
    bundle: Vec<u8>,
}

/// Compiles every variant of a template.
pub fn template(compiler: &GlslCompiler, shaders: &Path, name: &str) -> Result<Made> {
    let files = sources(shaders, name)?;
    let source = &files.first().context("no source")?.1;
    let header = Header::parse(source).map_err(|fault| anyhow!(fault))?;
    let version = GlslCompiler::version();
    let mut index = Index {
        template: name.to_owned(),
        source_hash: source_hash(&files, OPTIONS, &version),
        compiler: version,
        options: OPTIONS.to_owned(),
        ..Index::default()
    };
    let mut bytes = Vec::new();
    for point in header.points() {
        let whole = |optimise| {
            let words = compiler.compile(name, source, &header, &point, optimise)?;
            let module = reflect(&words).map_err(|fault| anyhow!(fault))?;
            Ok::<_, anyhow::Error>((words, module))
        };
        let variant = (|| {
            let (_, named) = whole(false)?;
            let (words, module) = whole(true)?;
            declare(&mut index, &header, access_of(&point), &named)?;
            bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
            Ok::<_, anyhow::Error>(VariantInfo {
                point: point.clone(),
                words: u32::try_from(words.len())?,
                capabilities: module.capabilities.into_iter().collect(),
                extensions: module.extensions.into_iter().collect(),
            })
        })();
        index.variants.push(variant.with_context(|| point_text(&point))?);
    }
    index.header = header;
    let bundle = miniz_oxide::deflate::compress_to_vec(&bytes, 10);
    index.bundle_hash = hash_bytes(HASH_SEED, &bundle);
    Ok(Made { index: index.to_text(), bundle })
}

/// Takes operands and parameters from the first variant of an access, and checks that all others agree.
fn declare(index: &mut Index, header: &Header, access: &str, module: &Reflection) -> Result<()> {
    let base_bytes = if access == "bda" { 8 } else { 4 };
    let bases = module.push.iter().take_while(|member| member.name.ends_with("_base")).count();
    let (base_members, params) = module.push.split_at(bases);
    let params_at = params.first().map_or(u32::try_from(bases)? * base_bytes, |member| member.offset_bytes);
    let layout = PushLayout {
        access: access.to_owned(),
        size_bytes: if params.is_empty() { params_at } else { module.push_bytes() },
        params_at_bytes: params_at,
    };
    ensure!(layout.size_bytes <= 128, "the push block takes {} bytes; 128 is the limit", layout.size_bytes);
    let mut infos = Vec::new();
    for member in params {
        ensure!(!member.scalar.is_empty(), "parameter {} is no scalar, vector or array of them", member.name);
        infos.push(ParamInfo {
            name: member.name.clone(),
            scalar: member.scalar.clone(),
            components: member.components,
            elements: member.elements,
            offset_bytes: member.offset_bytes - params_at,
        });
    }
    let bases: Vec<&str> =
        base_members.iter().map(|m| m.name.strip_suffix("_base").unwrap_or(&m.name)).collect();
    if access == "ssbo" {
        let operands = operands(module)?;
        same("operands", &mut index.operands, operands)?;
    }
    let names: Vec<&str> = index.operands.iter().map(|operand| operand.name.as_str()).collect();
    ensure!(bases == names, "PUSH has the bases {bases:?}, but the operands in slot order are {names:?}");
    let known = index.push.iter().any(|push| push.access == access);
    match index.push.iter().find(|push| push.access == access) {
        Some(push) => ensure!(*push == layout, "its push block differs from that of other variants"),
        None => index.push.push(layout),
    }
    if !known && index.push.len() == 1 {
        index.params = infos;
    } else {
        ensure!(
            index.params == infos,
            "its parameters are not those of other variants; put vectors before scalars: {infos:?} against {:?}",
            index.params
        );
    }
    spec_ids(header, module)
}

fn operands(module: &Reflection) -> Result<Vec<OperandInfo>> {
    let mut operands = Vec::new();
    for (slot, (binding, info)) in (0..).zip(&module.bindings) {
        ensure!(*binding == slot, "operand slots must count up from 0 without a gap; {slot} is missing");
        let access = match (info.readonly, info.writeonly) {
            (true, false) if info.texels => "read_texels",
            (true, false) => "read",
            (false, true) => "write",
            _ => "read_write",
        };
        let block = info.name.trim_end_matches(|c: char| c.is_ascii_digit());
        let name =
            block.strip_suffix("_buffer").or(block.strip_suffix("_texels")).unwrap_or(block).to_owned();
        operands.push(OperandInfo { name, access: access.to_owned() });
    }
    Ok(operands)
}

fn same(what: &str, known: &mut Vec<OperandInfo>, found: Vec<OperandInfo>) -> Result<()> {
    if known.is_empty() {
        *known = found;
    } else if *known != found {
        bail!("its {what} are not those of other variants: {found:?} against {known:?}");
    }
    Ok(())
}

fn spec_ids(header: &Header, module: &Reflection) -> Result<()> {
    let declared = |id: &u32| header.specs.iter().any(|spec| spec.id == *id);
    match module.spec_ids.iter().find(|id| !declared(id)) {
        Some(id) => bail!("the spec constant {id} has no `//! spec` line"),
        None => Ok(()),
    }
}

fn sources(shaders: &Path, name: &str) -> Result<Vec<(String, String)>> {
    let mut read = |path: &str| {
        fs::read_to_string(shaders.join(path)).map_err(|e| format!("{}: {e}", shaders.join(path).display()))
    };
    with_includes(&format!("{name}.comp"), &mut read).map_err(|fault| anyhow!(fault))
}

fn paths(shaders: &Path, name: &str) -> (PathBuf, PathBuf) {
    (shaders.join("index").join(format!("{name}.txt")), shaders.join("bundle").join(format!("{name}.bin")))
}

/// Whether the committed files match the sources, this compiler and its options.
pub fn is_fresh(shaders: &Path, name: &str) -> bool {
    let (index_path, bundle_path) = paths(shaders, name);
    let index = fs::read_to_string(index_path).ok().and_then(|text| Index::parse(&text).ok());
    let (Some(index), Ok(bundle), Ok(files)) = (index, fs::read(bundle_path), sources(shaders, name)) else {
        return false;
    };
    index.source_hash == source_hash(&files, OPTIONS, &GlslCompiler::version())
        && index.bundle_hash == hash_bytes(HASH_SEED, &bundle)
}

/// Writes index and bundle.
pub fn write(shaders: &Path, name: &str, made: &Made) -> Result<()> {
    let (index_path, bundle_path) = paths(shaders, name);
    for (path, bytes) in [(bundle_path, made.bundle.as_slice()), (index_path, made.index.as_bytes())] {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    }
    println!("{name}: {} bytes", made.bundle.len());
    Ok(())
}

/// Fails when the committed files differ from `made`.
pub fn compare(shaders: &Path, name: &str, made: &Made) -> Result<()> {
    let (index_path, bundle_path) = paths(shaders, name);
    for (path, bytes) in [(index_path, made.index.as_bytes()), (bundle_path, made.bundle.as_slice())] {
        let committed = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        ensure!(committed == bytes, "{} is not what the source gives; run `make shaders`", path.display());
    }
    Ok(())
}

/// Removes the files of templates that no longer exist; with `check`, fails when there are any.
pub fn stray_files(shaders: &Path, present: &[String], check: bool) -> Result<()> {
    for folder in ["index", "bundle"] {
        let Ok(entries) = fs::read_dir(shaders.join(folder)) else { continue };
        for entry in entries {
            let path = entry?.path();
            let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            if present.iter().any(|name| name == stem) {
                continue;
            }
            ensure!(!check, "{} belongs to no template", path.display());
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}
