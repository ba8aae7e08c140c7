//! Classifies handwritten digits on the Vulkan device of this machine: `cargo run --example digits`.
//!
//! Model and images are embedded, as they would be in an app. `VKDELEGATE_DEVICE` chooses another device.

use std::{
    error::Error,
    time::{Duration, Instant},
};

use safetensors::SafeTensors;
use vkdelegate::{DType, Delegate, Gpu, GpuOptions, HostTensor, Program};

const MODEL: &[u8] = include_bytes!("digits/digits.pt2");
const HELD_OUT: &[u8] = include_bytes!("digits/heldout.safetensors");

/// Height and width of an image, in pixels.
const SIDE: usize = 8;
const PIXELS: usize = SIDE * SIDE;
const CLASSES: usize = 10;
/// Images of one run.
const BATCH: usize = 60;
/// Images that are drawn.
const SHOWN: usize = 6;
/// The part of the held-out images that the model gets right, at least.
const WANTED_ACCURACY: f64 = 0.97;

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::args().len() > 1 {
        println!("Classifies handwritten digits. Takes no arguments; VKDELEGATE_DEVICE chooses the device.");
        return Ok(());
    }
    let held_out = SafeTensors::deserialize(HELD_OUT)?;
    let images = tensor(&held_out, "images", DType::F32)?.to_f32s();
    let labels = tensor(&held_out, "labels", DType::I64)?.to_i64s();

    let gpu = Gpu::open(GpuOptions::default())?;
    let program = Program::from_bytes(MODEL)?;
    let mut delegate = Delegate::builder(&gpu).method("forward").build(&program)?;

    let mut answers = Vec::with_capacity(labels.len());
    let mut times = Vec::new();
    for batch in images.chunks(BATCH * PIXELS) {
        let input = HostTensor::from_f32(&[batch.len() / PIXELS, 1, SIDE, SIDE], batch)?;
        let started = Instant::now();
        let outputs = delegate.run(&[input.into()])?;
        times.push(started.elapsed());
        answers.extend(outputs.tensor(0)?.to_f32s().chunks(CLASSES).map(likeliest));
    }

    draw(&images, &labels, &answers);
    report(&gpu, &delegate, &labels, &answers, &times)
}

fn tensor(file: &SafeTensors<'_>, name: &str, dtype: DType) -> Result<HostTensor, Box<dyn Error>> {
    let view = file.tensor(name)?;
    Ok(HostTensor::new(dtype, view.shape().to_vec(), view.data().to_vec())?)
}

/// The class with the largest score.
fn likeliest(scores: &[f32]) -> i64 {
    let best = scores.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    best.map_or(-1, |(class, _)| class as i64)
}

/// Draws some images side by side: the mistakes first, they are more interesting.
fn draw(images: &[f32], labels: &[i64], answers: &[i64]) {
    let mut order: Vec<usize> = (0..labels.len()).collect();
    order.sort_by_key(|&image| labels[image] == answers[image]);
    let wrong = order.iter().filter(|&&image| labels[image] != answers[image]).count();
    let shown: Vec<usize> = order
        .iter()
        .copied()
        .take(wrong.min(SHOWN / 2))
        .chain(order.iter().copied().skip(wrong))
        .take(SHOWN)
        .collect();
    for row in 0..SIDE {
        let pixels = |image: usize| &images[image * PIXELS + row * SIDE..][..SIDE];
        let line: Vec<String> =
            shown.iter().map(|&image| pixels(image).iter().map(|&ink| shade(ink)).collect()).collect();
        println!("{}", line.join("   "));
    }
    let captions: Vec<String> = shown
        .iter()
        .map(|&image| {
            let verdict = if labels[image] == answers[image] {
                String::new()
            } else {
                format!(", is {}", labels[image])
            };
            format!("{:<width$}", format!("says {}{verdict}", answers[image]), width = 2 * SIDE)
        })
        .collect();
    println!("{}\n", captions.join("   ").trim_end());
}

/// Two characters that are as dark as `ink`, which goes from 0 to 16.
fn shade(ink: f32) -> &'static str {
    const SHADES: [&str; 6] = ["  ", "..", "::", "++", "##", "@@"];
    let step = (ink / 16.0 * (SHADES.len() - 1) as f32).round() as usize;
    SHADES[step.min(SHADES.len() - 1)]
}

fn report(
    gpu: &Gpu,
    delegate: &Delegate,
    labels: &[i64],
    answers: &[i64],
    times: &[Duration],
) -> Result<(), Box<dyn Error>> {
    let right = labels.iter().zip(answers).filter(|(label, answer)| label == answer).count();
    let accuracy = right as f64 / labels.len() as f64;
    let fastest = times.iter().min().copied().unwrap_or_default();
    let device = &gpu.info().description;
    let report = delegate.report();
    let launches: usize = report.kernels.iter().map(|kernel| kernel.count).sum();
    println!("accuracy  {:.1} % of {} held-out images", accuracy * 100.0, labels.len());
    println!("device    {} ({} {})", device.name, device.driver_name, device.driver_info);
    println!(
        "time      {:.3} ms an image, in batches of {BATCH}",
        fastest.as_secs_f64() * 1e3 / BATCH as f64
    );
    println!(
        "delegate  {launches} kernel launches a run, {} KiB of weights",
        report.memory.constant_bytes / 1024
    );
    if accuracy < WANTED_ACCURACY {
        return Err(format!("at least {:.0} % should be right", WANTED_ACCURACY * 100.0).into());
    }
    Ok(())
}
