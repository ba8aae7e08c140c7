//! CPU time of this process.

use std::{fs, path::Path};

/// Milliseconds of CPU time that all living threads have used, where the system tells: Linux and Android do.
pub fn process_cpu_ms() -> Option<f64> {
    let mut total_ns = 0u64;
    for thread in fs::read_dir("/proc/self/task").ok()? {
        total_ns += thread_cpu_ns(&thread.ok()?.path()).unwrap_or(0);
    }
    Some(total_ns as f64 / 1e6)
}

/// The first number of `schedstat` is the time on the CPU. A thread may end while this looks at it.
fn thread_cpu_ns(thread: &Path) -> Option<u64> {
    fs::read_to_string(thread.join("schedstat")).ok()?.split_whitespace().next()?.parse().ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn work_takes_cpu_time() {
        let before = process_cpu_ms().unwrap();
        let mut sum = 0u64;
        let started = std::time::Instant::now();
        while started.elapsed().as_millis() < 30 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(process_cpu_ms().unwrap() > before);
    }
}
