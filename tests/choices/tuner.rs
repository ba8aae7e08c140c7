//! The tuner, which finds the fastest kernels and strikes out what is wrong; and what the delegate finds wrong by itself.

use std::{collections::BTreeSet, time::Duration};

use vkdelegate::{
    DType, Delegate, Gpu, GpuOptions, Precision, TuneOptions, Tuning, linear_program, ops::lanes_share,
    shader::Choices, tune,
};

use crate::{
    common::{
        choices::{self, dispatches},
        compare, device,
    },
    subject::{Subject, fixture},
};

/// A folder that goes with the value.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        Folder(std::env::temp_dir().join(format!("vkdelegate-{name}-{}", std::process::id())))
    }

    fn open(&self) -> Gpu {
        let options = GpuOptions { cache_dir: Some(self.0.clone()), ..GpuOptions::default() };
        Gpu::open(options).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn tuned(delegate: &Delegate) -> Vec<bool> {
    delegate.report().choices.iter().map(|choice| choice.tuned).collect()
}

#[test]
fn what_is_tuned_is_checked_timed_and_kept_for_the_next_start() {
    let _turn = device::turn();
    let folder = Folder::new("tuning");
    let subject = Subject::new("linears", linear_program(20, 24, 40, 2, DType::F32).unwrap(), Precision::F32);
    let build = |gpu: &Gpu, tuning| Delegate::builder(gpu).tuning(tuning).build(&subject.program).unwrap();
    let gpu = folder.open();
    let want = subject.run(&mut build(&gpu, Tuning::Off));
    assert_eq!(tuned(&build(&gpu, Tuning::Cached)), [false, false]);

    let report = tune(&gpu, &subject.program, &TuneOptions::default(), |_, _, _| ()).unwrap();
    assert_eq!((report.choices.len(), report.known, report.stored), (2, 0, true));
    assert_eq!(report.faults().collect::<Vec<_>>(), []);
    for choice in &report.choices {
        assert!(
            choice.checked_on_host && choice.tried.len() > 3 && choice.tried[0].candidate == choice.default
        );
        assert!(choice.tried.iter().all(|tried| tried.best_us.is_some_and(|us| us > 0.0)), "{choice:?}");
    }
    let again = tune(&gpu, &subject.program, &TuneOptions::default(), |_, _, _| ()).unwrap();
    assert_eq!((again.choices.len(), again.known), (0, 2));

    // A device opened anew finds it in the folder; candidates of the same kernel give the same bits.
    let later = folder.open();
    for tuning in [Tuning::Cached, Tuning::Measure] {
        let mut delegate = build(&later, tuning);
        assert_eq!(tuned(&delegate), [true, true]);
        for choice in delegate.report().choices {
            let found = report.choices.iter().find(|found| found.choice == choice.choice).unwrap();
            assert_eq!(Some(choice.candidate), found.picked);
        }
        let got = subject.run(&mut delegate);
        let close = compare::tensors(got.tensor(0).unwrap(), want.tensor(0).unwrap(), 1e-5, 1e-5);
        close.unwrap();
    }
    assert_eq!(tuned(&build(&later, Tuning::Off)), [false, false]);

    // A damaged file counts as none.
    let files = std::fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().path());
    let path = files.into_iter().find(|path| path.to_str().unwrap().contains("tuning")).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(tuned(&build(&folder.open(), Tuning::Cached)), [false, false]);
}

#[test]
fn a_wrong_candidate_is_named_and_never_runs_again() {
    let _turn = device::turn();
    let subject = Subject::new("linear", linear_program(20, 24, 40, 1, DType::F32).unwrap(), Precision::F32);
    // The very one that the class of the device would choose; of kernels that test themselves at start, another shape.
    let default = subject.build(&Gpu::from_context(device::context()), Choices::default());
    let first = &dispatches(default.session())[0];
    let kernel = first.kernel.info().unwrap().name;
    let broken = if kernel == "matmul_lanes" { vec![64] } else { first.local_size() };
    let shape = format!(" {}x{}", broken[0], broken.get(1).unwrap_or(&1));
    let offers = choices::offers(default.session(), device::context().profile());
    let names = offers.into_values().flatten().flatten();
    let ways = match kernel {
        "matmul_lanes" => "lanes",
        "matmul_texel" => "texels",
        _ => "rows",
    };
    let expected: BTreeSet<String> =
        names.filter(|name| name.ends_with(&shape) && name.starts_with(ways)).collect();
    let fresh = Gpu::open(GpuOptions::default()).unwrap();
    fresh.context().break_work_group(kernel, &broken);
    let patient = TuneOptions { budget: Duration::from_secs(3600), ..TuneOptions::default() };
    let report = tune(&fresh, &subject.program, &patient, |_, _, _| ()).unwrap();
    let wrong: BTreeSet<&str> = report.faults().map(|(_, candidate, _)| candidate).collect();
    let faults: Vec<_> = report.faults().collect();
    assert_eq!(wrong, expected.iter().map(String::as_str).collect(), "{faults:?}");
    let picked = report.choices[0].picked.clone().unwrap();
    assert!(!wrong.contains(picked.as_str()), "{picked}");

    // Another shape, which nobody has tuned, does not get it either.
    let other = Subject::new("other", linear_program(9, 16, 36, 1, DType::F32).unwrap(), Precision::F32);
    let mut delegate = Delegate::builder(&fresh).build(&other.program).unwrap();
    let taken = delegate.report().choices[0].clone();
    assert!(!taken.tuned && !wrong.contains(taken.candidate.as_str()), "{taken:?}");
    let want = other.run(&mut other.build(&Gpu::open(GpuOptions::default()).unwrap(), Choices::default()));
    compare::tensors(other.run(&mut delegate).tensor(0).unwrap(), want.tensor(0).unwrap(), 1e-5, 1e-5)
        .unwrap();

    // A build that measures tells of it.
    let third = Gpu::open(GpuOptions::default()).unwrap();
    third.context().break_work_group(kernel, &broken);
    let builder = Delegate::builder(&third).tuning(Tuning::Measure).tuning_budget(patient.budget);
    let delegate = builder.build(&subject.program).unwrap();
    let warnings = delegate.report().warnings.join("\n");
    assert!(expected.iter().all(|name| warnings.contains(name.as_str())), "{warnings}");
    assert_eq!(tuned(&delegate), [true]);
}

/// Activations in packed words come with their sums, and go with the scales and sums of a weight.
#[test]
fn products_of_quantised_activations_are_held_to_the_host() {
    let _turn = device::turn();
    let gpu = Gpu::open(GpuOptions::default()).unwrap();
    for name in ["act_affine", "act_per_token_groups", "act_static_codes", "act_int_mm_unsigned"] {
        let patient = TuneOptions { budget: Duration::from_secs(3600), ..TuneOptions::default() };
        let report = tune(&gpu, &fixture(name), &patient, |_, _, _| ()).unwrap();
        assert_eq!(report.faults().collect::<Vec<_>>(), [], "{name}");
        let dots = report.choices.iter().filter(|choice| choice.choice.starts_with("linear_dot"));
        assert!(dots.clone().next().is_some() && dots.clone().all(|dot| dot.checked_on_host), "{name}");
    }
}

#[test]
fn a_kernel_that_is_as_wrong_in_every_shape_is_found() {
    let _turn = device::turn();
    let gpu = Gpu::open(GpuOptions::default()).unwrap();
    gpu.context().break_kernel("linear_dot");
    let report = tune(&gpu, &fixture("act_affine"), &TuneOptions::default(), |_, _, _| ()).unwrap();
    let dot = report.choices.iter().find(|choice| choice.choice.starts_with("linear_dot")).unwrap();
    assert!(dot.picked.is_none() && dot.tried.iter().all(|tried| tried.fault.is_some()), "{dot:?}");
}

#[test]
fn the_budget_of_a_tuner_holds() {
    let _turn = device::turn();
    let gpu = Gpu::open(GpuOptions::default()).unwrap();
    let options = TuneOptions { budget: Duration::ZERO, ..TuneOptions::default() };
    let program = linear_program(20, 24, 40, 2, DType::F32).unwrap();
    let report = tune(&gpu, &program, &options, |_, _, _| ()).unwrap();
    assert_eq!((report.choices.len(), report.not_reached.len(), report.stored), (0, 2, false));
    assert!(gpu.context().choices().is_empty());
}

/// F53 and F54. Kernels whose lanes share loads are tried before they are used; where they are wrong, others run.
#[test]
fn lanes_that_give_wrong_values_are_not_used() {
    let _turn = device::turn();
    let subject = Subject::new("linear", linear_program(5, 40, 70, 1, DType::F32).unwrap(), Precision::F32);
    let takes_lanes = |delegate: &Delegate| {
        choices::taken(delegate.session()).values().any(|candidate| candidate.starts_with("lanes"))
    };
    let mut right = subject.build(&Gpu::from_context(device::context()), Choices::default());
    assert_eq!(takes_lanes(&right), lanes_share(device::context().profile()));
    let gpu = Gpu::open(GpuOptions::default()).unwrap();
    gpu.context().break_kernel("matmul_lanes");
    let mut other = subject.build(&gpu, Choices::default());
    assert!(!takes_lanes(&other));
    let (got, want) = (subject.run(&mut other), subject.run(&mut right));
    compare::tensors(got.tensor(0).unwrap(), want.tensor(0).unwrap(), 1e-5, 1e-5).unwrap();
}
