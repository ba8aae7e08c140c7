//! `run`: inputs from files in every format, several runs on one delegate, outputs to files.

use vkdelegate::{DType, HostTensor};

use crate::{
    support::{Folder, NO_DRIVER, Ran, fixture, tool, tool_with},
    tensors::{self, NamedTensors},
};

/// The recorded tensors of call `inv` of method `model` whose name starts with `kind`, without the prefix.
fn recorded(references: &NamedTensors, inv: usize, kind: &str) -> NamedTensors {
    let prefix = format!("model.inv{inv}.");
    let parts = references.iter().filter_map(|(name, tensor)| Some((name.strip_prefix(&prefix)?, tensor)));
    parts
        .filter(|(name, _)| name.starts_with(kind))
        .map(|(name, tensor)| (name.to_string(), tensor.clone()))
        .collect()
}

fn references(case: &str) -> NamedTensors {
    tensors::read(fixture(&format!("{case}.safetensors")).as_ref()).unwrap()
}

#[track_caller]
fn assert_close(got: &NamedTensors, want: &NamedTensors) {
    assert_eq!(got.keys().collect::<Vec<_>>(), want.keys().collect::<Vec<_>>());
    for (name, want) in want {
        let mismatch = vkdelegate::verify::compare_tensors(&got[name], want, 1e-4, 1e-4);
        assert_eq!(mismatch, None, "{name}");
    }
}

/// Runs the three recorded calls of `running_mean` with further arguments and variables; its outputs must be right.
#[track_caller]
fn run_with_state(folder: &str, more: &[&str], variables: &[(&str, &str)]) -> Ran {
    let folder = Folder::new(folder);
    let references = references("running_mean");
    let outputs = folder.path("out.safetensors");
    let model = fixture("running_mean.pt2");
    let mut arguments = vec!["run", &model, "--outputs", &outputs];
    arguments.extend(more);
    let files: Vec<String> = (0..3).map(|inv| folder.path(&format!("in{inv}.npz"))).collect();
    let mut want = NamedTensors::new();
    for (inv, file) in files.iter().enumerate() {
        tensors::write(file.as_ref(), &recorded(&references, inv, "in")).unwrap();
        arguments.extend(["--inputs", file]);
        want.extend(
            recorded(&references, inv, "out")
                .into_iter()
                .map(|(name, tensor)| (format!("inv{inv}.{name}"), tensor)),
        );
    }
    let ran = tool_with(&arguments, variables);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert_close(&tensors::read(outputs.as_ref()).unwrap(), &want);
    ran
}

#[test]
fn several_runs_share_one_delegate_and_its_state() {
    run_with_state("runs", &[], &[]).passes();
}

#[test]
fn without_a_device_the_host_runs_when_asked_to() {
    let ran = run_with_state("host", &["--fallback"], &NO_DRIVER);
    assert!(ran.stderr.contains("running on the host"), "{}", ran.stderr);
}

#[test]
fn inputs_go_by_the_names_of_the_program_too() {
    let folder = Folder::new("names");
    let references = references("nested_io");
    let names = ["a", "pair_0", "pair_1", "opts_unused"];
    let inputs = names
        .iter()
        .enumerate()
        .map(|(index, name)| (name.to_string(), references[&format!("model.inv0.in{index}")].clone()));
    let (file, outputs) = (folder.path("in.safetensors"), folder.path("out.npz"));
    tensors::write(file.as_ref(), &inputs.collect()).unwrap();
    tool(&["run", &fixture("nested_io.pt2"), "--inputs", &file, "--outputs", &outputs]).passes();
    assert_close(&tensors::read(outputs.as_ref()).unwrap(), &recorded(&references, 0, "out"));
}

#[test]
fn scalars_mutated_inputs_and_single_arrays_work() {
    let folder = Folder::new("kinds");
    let cases = [
        ("symint_input", "safetensors", "npz"),
        ("user_input_mutation", "npz", "safetensors"),
        ("running_mean", "npy", "npy"),
    ];
    for (case, from, to) in cases {
        let references = references(case);
        let file = folder.path(&format!("{case}-in.{from}"));
        let outputs = folder.path(&format!("{case}-out.{to}"));
        tensors::write(file.as_ref(), &recorded(&references, 0, "in")).unwrap();
        tool(&["run", &fixture(&format!("{case}.pt2")), "--inputs", &file, "--outputs", &outputs]).passes();
        let mut want = recorded(&references, 0, "out");
        want.extend(recorded(&references, 0, "mut"));
        if to == "npy" {
            want = [("in0".to_string(), want["out0"].clone())].into();
        }
        assert_close(&tensors::read(outputs.as_ref()).unwrap(), &want);
    }
}

#[test]
fn without_a_file_the_outputs_are_summed_up() {
    let folder = Folder::new("summary");
    let file = folder.path("in.safetensors");
    tensors::write(file.as_ref(), &recorded(&references("linear_const"), 0, "in")).unwrap();
    let stdout = tool(&["run", &fixture("linear_const.pt2"), "--inputs", &file]).passes().stdout;
    assert!(stdout.starts_with("out0: float32["), "{stdout}");
}

#[test]
fn numpy_has_no_bfloat16() {
    let folder = Folder::new("bfloat16");
    let file = folder.path("in.safetensors");
    tensors::write(file.as_ref(), &recorded(&references("weight_bf16"), 0, "in")).unwrap();
    let model = fixture("weight_bf16.pt2");
    tool(&["run", &model, "--inputs", &file, "--outputs", &folder.path("out.npz")]).refuses("safetensors");
    tool(&["run", &model, "--inputs", &file, "--outputs", &folder.path("out.safetensors")]).passes();
}

#[test]
fn wrong_inputs_are_named() {
    let folder = Folder::new("wrong");
    let model = fixture("linear_const.pt2");
    let good = recorded(&references("linear_const"), 0, "in")["in0"].clone();
    let wide = HostTensor::from_i64s(DType::F32, vec![3, 3, 3], &[0; 27]).unwrap();
    let cases: [(&str, NamedTensors, &str); 4] = [
        ("missing", NamedTensors::new(), "`input`"),
        ("stranger", [("in0".into(), good.clone()), ("in7".into(), good.clone())].into(), "`in7`"),
        ("twice", [("in0".into(), good.clone()), ("input".into(), good.clone())].into(), "`in0`"),
        ("shape", [("in0".into(), wide)].into(), "[3, 3, 3]"),
    ];
    for (name, inputs, text) in cases {
        let file = folder.path(&format!("{name}.safetensors"));
        tensors::write(file.as_ref(), &inputs).unwrap();
        tool(&["run", &model, "--inputs", &file]).refuses(text);
    }
    // Recorded calls go to `verify`; here their names tell what is wrong.
    let recorded = fixture("linear_const.safetensors");
    tool(&["run", &model, "--inputs", &recorded]).refuses("`in0`").refuses("`model.inv0.in0`");
}
