//! How much work a submission has.

use std::sync::Arc;

use vkdelegate::{
    DType, Delegate, Gpu, Precision, linear_program, quantised_linear_program, shader::Choices,
};

use crate::{
    common::{choices::dispatches, device},
    subject::{Subject, fixture},
};

/// F65.
#[test]
fn submissions_of_any_size_give_the_same_bits() {
    let _turn = device::turn();
    let context = device::context();
    let gpu = Gpu::from_context(Arc::clone(&context));
    let subject = Subject::new("mini_bert", fixture("mini_bert"), Precision::F32);
    let run = |ops: Option<u64>| {
        let builder = Delegate::builder(&gpu);
        let builder = ops.map_or(builder.clone(), |ops| builder.submission_ops(ops));
        let mut delegate = builder.build(&subject.program).unwrap();
        let before = context.gpu().counters().submissions;
        let got = subject.run(&mut delegate);
        (got, context.gpu().counters().submissions - before, dispatches(delegate.session()).len() as u64)
    };
    let (want, submissions, _) = run(None);
    assert_eq!(submissions, 1, "a small model goes in one");
    let (got, some, _) = run(Some(1_000_000));
    assert!(some > 1 && got == want, "{some} submissions");
    let (got, each, count) = run(Some(1));
    assert!(each == count && got == want, "{each} submissions of {count} dispatches");
    assert_eq!(device::validation_messages(), [""; 0]);
}

/// F65. The planner splits what no budget holds along rows.
#[test]
fn a_product_beyond_the_budget_is_split_along_rows() {
    let _turn = device::turn();
    let gpu = Gpu::from_context(device::context());
    for program in [linear_program(300, 64, 96, 1, DType::F32), quantised_linear_program(300, 64, 96, 1, 8)] {
        let subject = Subject::new("tall", program.unwrap(), Precision::F32);
        let whole = subject.run(&mut subject.build(&gpu, Choices::default()));
        let budget = 2 * 64 * 96 * 70;
        let mut delegate = Delegate::builder(&gpu).submission_ops(budget).build(&subject.program).unwrap();
        let products = dispatches(delegate.session()).iter().filter_map(|dispatch| dispatch.choice);
        let rows: Vec<usize> = products.map(|choice| choice.key.m).collect();
        assert!(rows.len() > 4 && rows.iter().sum::<usize>() == 300, "{rows:?}");
        assert!(dispatches(delegate.session()).iter().all(|dispatch| dispatch.estimated_ops() <= budget));
        assert_eq!(subject.run(&mut delegate), whole);
    }
}
