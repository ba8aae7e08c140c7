//! Bad usage, bad files, refused programs and missing devices: exit code 2, and an error that says what to do.

use crate::support::{Folder, NO_DRIVER, fixture, tool, tool_with};

#[test]
fn bad_usage_is_refused() {
    for arguments in
        [&[][..], &["frobnicate"], &["inspect"], &["run", "x.pt2"], &["devices", "--nonsense"], &["bench"]]
    {
        let ran = tool(arguments);
        assert_eq!((ran.code, ran.stdout.as_str()), (2, ""), "{arguments:?}: {ran:?}");
    }
    assert!(tool(&["--version"]).passes().stdout.starts_with("vkdelegate "));
}

/// The help of every command fits a terminal, and that of the tool says what exit codes mean.
#[test]
fn every_command_has_help() {
    let help = tool(&["--help"]).passes().stdout;
    assert!(help.contains("1 a check failed") && help.contains("VKDELEGATE_DEVICE"), "{help}");
    for command in ["devices", "inspect", "run", "verify", "compare", "bench", "tune"] {
        assert!(help.contains(&format!("\n  {command} ")), "{command} in {help}");
        for page in [&[command, "-h"], &[command, "--help"]] {
            let text = tool(page).passes().stdout;
            assert!(text.contains(&format!("Usage: vkdelegate {command} ")), "{text}");
            let wide = text.lines().find(|line| line.chars().count() > 100);
            assert_eq!(wide, None, "{page:?}");
        }
    }
}

#[test]
fn bad_files_are_refused() {
    let folder = Folder::new("bad-files");
    let sound = std::fs::read(fixture("linear_const.pt2")).unwrap();
    let bad = [
        (folder.path("missing.pt2"), "cannot read", "path"),
        (folder.write("empty.pt2", b""), "empty", "torch.export.save"),
        (folder.write("text.pt2", b"no zip at all"), "text.pt2", "torch.export.save"),
        (folder.write("half.pt2", &sound[..sound.len() / 2]), "half.pt2", "torch.export.save"),
        (fixture("legacy/legacy_2_5.pt2"), "export", "as the text says"),
    ];
    for (path, text, next) in &bad {
        tool(&["inspect", path]).refuses(text).says_what_next(next);
        tool(&["inspect", path, "--json"]).refuses(text);
        tool(&["verify", path, &fixture("linear_const.safetensors"), "--json"]).refuses(text);
    }
    for (name, bytes) in [
        ("x.safetensors", &b"\xff\xff\xff\xff\xff\xff\xff\xffnothing"[..]),
        ("x.npz", b"PK"),
        ("x.npy", b"\x93NUMPY"),
    ] {
        let path = folder.write(name, bytes);
        tool(&["run", &fixture("linear_const.pt2"), "--inputs", &path]).refuses(name);
    }
    let other = folder.write("x.pt", b"");
    tool(&["run", &fixture("linear_const.pt2"), "--inputs", &other]).refuses(".safetensors");
    let lost = folder.path("nowhere/out.npz");
    let inputs = folder.path("not-read.npz");
    tool(&["run", &fixture("linear_const.pt2"), "--inputs", &inputs, "--outputs", &lost])
        .refuses("no folder");
}

#[test]
fn all_nodes_that_cannot_run_are_named_at_once() {
    let folder = Folder::new("unsupported");
    let inputs = folder.path("in.safetensors");
    let x = vkdelegate::HostTensor::from_f32(&[1], &[0.5]).unwrap();
    crate::tensors::write(inputs.as_ref(), &[("in0".to_string(), x)].into()).unwrap();
    let model = fixture("refused/several_unsupported.pt2");
    let ran = tool(&["compare", &model]).refuses("lgamma");
    assert!(ran.stderr.contains("erfinv") && ran.stderr.contains("i0"), "{ran:?}");
    tool(&["verify", &model, &fixture("linear_const.safetensors")]).refuses("erfinv");
    tool(&["bench", &model, "--json"]).refuses("erfinv");
}

#[test]
fn an_unknown_device_is_refused_with_those_there_are() {
    let listed = tool(&["devices", "--json"]).json();
    let name = listed["devices"][0]["name"].as_str().unwrap();
    tool(&["bench", "--op", "linear", "--shape", "2x2x2", "--device", "no such device"])
        .refuses(name)
        .says_what_next("`vkdelegate devices`");
}

#[test]
fn a_method_is_named_where_there_are_several() {
    let model = fixture("multimethod_lora.pt2");
    let inputs = fixture("multimethod_lora.safetensors");
    tool(&["run", &model, "--inputs", &inputs]).refuses("--method").says_what_next("`vkdelegate inspect`");
    tool(&["compare", &model, "--method", "nope"]).refuses("lora");
}

#[test]
fn no_driver_is_an_error_that_says_what_to_install() {
    tool_with(&["devices"], &NO_DRIVER).refuses("driver").says_what_next("--fallback");
    let model = fixture("linear_const.pt2");
    tool_with(&["verify", &model, &fixture("linear_const.safetensors")], &NO_DRIVER).refuses("driver");
    assert_eq!(tool_with(&["inspect", &model], &NO_DRIVER).passes().code, 0, "inspect opens no device");
}

/// A machine without Vulkan can start the tool, and is told what is missing.
#[cfg(target_os = "linux")]
#[test]
fn the_tool_is_not_linked_with_the_vulkan_loader() {
    let output = std::process::Command::new("ldd").arg(env!("CARGO_BIN_EXE_vkdelegate")).output().unwrap();
    let libraries = String::from_utf8_lossy(&output.stdout);
    assert!(libraries.contains("libc.so"), "{output:?}");
    assert!(!libraries.contains("vulkan"), "{libraries}");
}
