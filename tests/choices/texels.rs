//! Products whose matrices are read as texels, as Adreno does.

use std::sync::Arc;

use vkdelegate::{
    DType, Gpu, Precision,
    delegate::Context,
    gpu::{self, CapsOverride},
    linear_program,
    shader::{Access, Choices, Need},
};

use crate::{
    common::{choices, device},
    subject::{Subject, live, sums},
};

/// A device of Adreno's class, whose views take `max_texels` texels, under both kinds of validation.
fn adreno(max_texels: Option<u64>) -> Arc<Context> {
    let overrides = CapsOverride {
        class: Some(gpu::DeviceClass::Adreno7xx),
        max_texel_buffer_elems: max_texels,
        ..CapsOverride::default()
    };
    device::opened(overrides, Some(Access::Ssbo))
}

/// Texels give what storage buffers give, for tiles that are not full, batches, columns past the end, sums on top of what
/// is there, and operands that dispatches before wrote; and views go with their recordings.
#[test]
fn texels_give_the_bits_of_storage_buffers() {
    let _turn = device::turn();
    let context = adreno(None);
    let gpu = Gpu::from_context(Arc::clone(&context));
    let linear = |m, k, n| linear_program(m, k, n, 1, DType::F32).unwrap();
    let has_halves = context.profile().features.contains(Need::Storage16Bit);
    const WIDE: usize = 2;
    let programs =
        [linear(13, 68, 50), linear(8, 4, 1), linear(37, 40, 300), live(11, 36, 32), sums(19, 24, 12)];
    for (number, program) in programs.into_iter().enumerate() {
        // Without 16-bit storage, halves are 32-bit floats too.
        for precision in [Precision::F32, Precision::F16].into_iter().take(1 + usize::from(has_halves)) {
            let subject = Subject {
                name: format!("{number} {precision:?}"),
                ..Subject::new("", program.clone(), precision)
            };
            let default = subject.build(&gpu, Choices::default());
            let names: Vec<String> = choices::taken(default.session()).into_keys().collect();
            let run = |way: &str| {
                let mut choices = Choices::default();
                names.iter().for_each(|name| choices.set(name, format!("{way} 32x1")));
                let mut delegate = subject.build(&gpu, choices);
                let taken = choices::taken(delegate.session());
                assert!(!taken.is_empty() && taken.values().all(|taken| taken.starts_with(way)), "{taken:?}");
                let got = subject.run(&mut delegate);
                assert_eq!(context.gpu().counters().buffer_views > 0, way == "texels8", "{way}");
                got
            };
            assert!(run("texels8") == run("rows4"), "{}", subject.name);
            // Halves are texels by default where a group has one tile; 32-bit floats come as fast by storage buffers.
            let is_default =
                choices::taken(default.session()).values().all(|taken| taken.starts_with("texels8 "));
            let is_wide = number == WIDE;
            assert_eq!(is_default, precision == Precision::F16 && is_wide, "{}", subject.name);
            assert_eq!(context.gpu().counters().buffer_views, 0);
        }
    }
    assert_eq!(context.gpu().validation_messages(), [""; 0]);
}

/// Views are of 65536 texels on some devices, and storage buffers of more.
#[test]
fn what_no_view_holds_is_read_by_storage_buffers() {
    let _turn = device::turn();
    let context = adreno(Some(544));
    let gpu = Gpu::from_context(Arc::clone(&context));
    for (m, is_small) in [(8, true), (64, false)] {
        let program = linear_program(m, 64, 16, 1, DType::F32).unwrap();
        let subject = Subject::new(format!("{m} rows"), program, Precision::F32);
        let default = subject.build(&gpu, Choices::default());
        let ways = choices::offers(default.session(), context.profile()).into_values().flatten();
        let has_texels = ways.flatten().any(|name| name.starts_with("texels8"));
        assert_eq!(has_texels, is_small, "{m} rows");
    }
}
