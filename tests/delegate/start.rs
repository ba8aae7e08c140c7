//! From nothing to the first result: which kernels are compiled, when, and how often.

use std::{collections::HashSet, fs, path::PathBuf};

use vkdelegate::{gpu::GpuOptions, shader::kernels};

use crate::support::*;

/// Five kernels; the last two nodes need the same.
const TEXT: &str = "graph g
input %p_w: float32[16, 8] = parameter \"w\"
input %x: float32[4, 8]
%a: float32[4, 16] = aten.linear.default(input=%x, weight=%p_w)
%b: float32[4, 16] = aten._softmax.default(self=%a, dim=1, half_to_float=false)
%c: float32[4, 16] = aten.mul.Tensor(self=%b, other=%a)
%d: float32[4, 16] = aten.exp.default(self=%c)
%e: float32[4] = aten.sum.dim_IntList(self=%d, dim=[1], keepdim=false)
%f: float32[4] = aten.mul.Tensor(self=%e, other=%e)
output %f
";

/// A folder of its own, removed when dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// F69: the build compiles each kernel that the program needs, once and no other; the first run compiles nothing. What the
/// driver made of them is on disk before the process ends, and the next process has nothing to add.
#[test]
fn only_what_is_used_is_compiled_and_kept_for_the_next_start() {
    let method = program(TEXT);
    on_each_access_with(GpuOptions::default, |any| {
        let access = any.profile().access;
        let folder =
            Folder(std::env::temp_dir().join(format!("vkdelegate-start-{access}-{}", std::process::id())));
        let kept = std::cell::RefCell::new(None);
        for start in 0..3 {
            let options = GpuOptions { cache_dir: Some(folder.0.clone()), ..validated() };
            with_context(options, access, |context| {
                let created = || context.gpu().counters().pipelines_created;
                let mut session = build(context, &method);
                let dispatches = &session.plan().unwrap().dispatches;
                let used: HashSet<_> =
                    dispatches.iter().map(|dispatch| (dispatch.kernel, &dispatch.spec)).collect();
                assert_eq!(created(), used.len() as u64, "a kernel too many, or twice");
                assert!(dispatches.len() > used.len() && used.len() < kernels::TEMPLATES.len());
                let files: Vec<_> =
                    fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().path()).collect();
                let [file] = files.as_slice() else { panic!("{files:?}") };
                let now = (fs::read(file).unwrap(), fs::metadata(file).unwrap().modified().unwrap());
                let mut kept = kept.borrow_mut();
                assert_eq!(kept.get_or_insert_with(|| now.clone()), &now, "start {start} compiled something");
                let built = created();
                assert_matches_host(&mut session, &[floats(&[4, 8], start)]);
                assert_eq!(created(), built, "the first run compiled something");
            });
        }
    });
}
