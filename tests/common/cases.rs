//! Reads the op cases of `tests/ops/`; the format is told in the README there.

use std::path::Path;

use serde_json::Value as Json;
use vkdelegate::{
    base::{DType, HostTensor, Scalar},
    ir::OpName,
    ops::{ArgValue, Args},
};

/// A tensor operand of a case.
#[derive(Clone, Debug)]
pub struct CaseTensor {
    /// The values, row-major.
    pub tensor: HostTensor,
    /// Whether it belongs to the program rather than to the caller.
    pub constant: bool,
    /// How the program stores it, where not contiguously.
    pub strides: Option<Vec<usize>>,
}

/// One argument of a case.
#[derive(Clone, Debug)]
pub enum CaseArg {
    None,
    Tensor(CaseTensor),
    Tensors(Vec<Option<CaseTensor>>),
    Scalar(Scalar),
    Ints(Vec<i64>),
    Floats(Vec<f64>),
    Bools(Vec<bool>),
    Str(String),
    DType(DType),
}

/// One expected output of a case.
#[derive(Clone, Debug)]
pub enum CaseOutput {
    /// A placeholder whose content is not checked.
    Unchecked,
    /// Every element.
    Full(HostTensor),
    /// Some elements, and a sum over all of them where they are whole numbers.
    Sampled { dtype: DType, sizes: Vec<usize>, samples: Vec<(usize, f64)>, weighted_sum: Option<f64> },
}

/// One call with what PyTorch gives for it.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: String,
    pub op: String,
    pub args: Vec<(String, CaseArg)>,
    pub outputs: Vec<CaseOutput>,
    pub rtol: f64,
    pub atol: f64,
    /// Why PyTorch refuses the call, where it does.
    pub refused: Option<String>,
}

/// Every case of every family, as (family, cases), sorted by family.
pub fn all() -> Vec<(String, Vec<Case>)> {
    all_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ops"))
}

/// The same, of the files in `folder`.
pub fn all_in(folder: &Path) -> Vec<(String, Vec<Case>)> {
    let mut families: Vec<(String, Vec<Case>)> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            let json: Vec<Json> = serde_json::from_str(&text).unwrap();
            (path.file_stem().unwrap().to_string_lossy().into_owned(), json.iter().map(case).collect())
        })
        .collect();
    families.sort_by(|a, b| a.0.cmp(&b.0));
    families
}

impl Case {
    /// A call of `op` for which PyTorch has said nothing.
    pub fn call<'a>(op: &str, args: impl IntoIterator<Item = (&'a str, CaseArg)>) -> Case {
        Case {
            name: op.to_string(),
            op: op.to_string(),
            args: args.into_iter().map(|(name, arg)| (name.to_string(), arg)).collect(),
            outputs: vec![],
            rtol: 0.0,
            atol: 0.0,
            refused: None,
        }
    }

    /// Whether a device runs the op only as what the passes make of it: a `linear` with a weight that the caller gives,
    /// and codes that share bytes.
    pub fn needs_passes(&self) -> bool {
        let weight = self.args.iter().find(|(name, _)| name == "weight");
        let is_live = matches!(weight, Some((_, CaseArg::Tensor(weight))) if !weight.constant);
        let is_lookup = self.op.starts_with("quantized_decomposed.embedding_");
        self.refused.is_none() && (is_lookup || (self.op == "aten.linear.default" && is_live))
    }
}

fn case(json: &Json) -> Case {
    let refused = json["refused"].as_str().map(str::to_string);
    Case {
        name: json["name"].as_str().unwrap().to_string(),
        op: json["op"].as_str().unwrap().to_string(),
        args: list(&json["args"], |arg| (arg["name"].as_str().unwrap().to_string(), argument(arg))),
        outputs: if refused.is_some() { Vec::new() } else { list(&json["outputs"], output) },
        rtol: json["rtol"].as_f64().unwrap_or(1e-4),
        atol: json["atol"].as_f64().unwrap_or(1e-4),
        refused,
    }
}

fn list<T>(json: &Json, item: impl Fn(&Json) -> T) -> Vec<T> {
    json.as_array().unwrap_or_else(|| panic!("{json} is no list")).iter().map(item).collect()
}

fn number(json: &Json) -> f64 {
    match json.as_str() {
        Some("NaN") => f64::NAN,
        Some("Infinity") => f64::INFINITY,
        Some("-Infinity") => f64::NEG_INFINITY,
        Some(other) => panic!("{other} is no number"),
        None => json.as_f64().unwrap_or_else(|| panic!("{json} is no number")),
    }
}

fn dtype(json: &Json) -> DType {
    DType::parse(json.as_str().unwrap()).unwrap_or_else(|| panic!("{json} is no dtype"))
}

fn sizes(json: &Json) -> Vec<usize> {
    list(json, |size| size.as_u64().unwrap() as usize)
}

fn host_tensor(json: &Json) -> HostTensor {
    let (dtype, sizes) = (dtype(&json["dtype"]), sizes(&json["sizes"]));
    if let Some(generator) = json.get("gen") {
        let (lo, hi) = (generator["lo"].as_i64().unwrap(), generator["hi"].as_i64().unwrap());
        let mut state = generator["seed"].as_u64().unwrap() as u32;
        let data: Vec<i64> = (0..sizes.iter().product())
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                lo + i64::from(state >> 16) % (hi - lo + 1)
            })
            .collect();
        return HostTensor::from_i64s(dtype, sizes, &data).unwrap();
    }
    if dtype.is_float() {
        // Half types are written as the float32 they equal, so rounding through f32 changes nothing.
        let data: Vec<f64> = list(&json["data"], |value| f64::from(number(value) as f32));
        HostTensor::from_f64s(dtype, sizes, &data).unwrap()
    } else {
        let data: Vec<i64> = list(&json["data"], |value| value.as_i64().unwrap());
        HostTensor::from_i64s(dtype, sizes, &data).unwrap()
    }
}

fn case_tensor(json: &Json) -> CaseTensor {
    CaseTensor {
        tensor: host_tensor(json),
        constant: json["constant"].as_bool().unwrap_or(false),
        strides: json.get("strides").map(sizes),
    }
}

fn argument(json: &Json) -> CaseArg {
    let (form, value) = json.as_object().unwrap().iter().find(|(key, _)| *key != "name").unwrap();
    match form.as_str() {
        "none" => CaseArg::None,
        "tensor" => CaseArg::Tensor(case_tensor(value)),
        "tensors" => CaseArg::Tensors(list(value, |item| (!item.is_null()).then(|| case_tensor(item)))),
        "int" => CaseArg::Scalar(Scalar::Int(value.as_i64().unwrap())),
        "float" => CaseArg::Scalar(Scalar::Float(number(value))),
        "bool" => CaseArg::Scalar(Scalar::Bool(value.as_bool().unwrap())),
        "ints" => CaseArg::Ints(list(value, |item| item.as_i64().unwrap())),
        "floats" => CaseArg::Floats(list(value, number)),
        "bools" => CaseArg::Bools(list(value, |item| item.as_bool().unwrap())),
        "str" => CaseArg::Str(value.as_str().unwrap().to_string()),
        "dtype" => CaseArg::DType(dtype(value)),
        other => panic!("{other} is no form of argument"),
    }
}

fn output(json: &Json) -> CaseOutput {
    if json.is_null() {
        CaseOutput::Unchecked
    } else if json.get("data").is_some() {
        CaseOutput::Full(host_tensor(json))
    } else {
        CaseOutput::Sampled {
            dtype: dtype(&json["dtype"]),
            sizes: sizes(&json["sizes"]),
            samples: list(&json["samples"], |pair| (pair[0].as_u64().unwrap() as usize, number(&pair[1]))),
            weighted_sum: json.get("weighted_sum").map(number),
        }
    }
}

/// The arguments of the call, as `eval` takes them.
pub fn host_args(case: &Case) -> Args<HostTensor> {
    let items = case.args.iter().map(|(name, arg)| {
        let value = match arg.clone() {
            CaseArg::None => ArgValue::None,
            CaseArg::Tensor(tensor) => ArgValue::Tensor(tensor.tensor),
            CaseArg::Tensors(tensors) => ArgValue::Tensors(
                tensors.into_iter().map(|tensor| tensor.map(|tensor| tensor.tensor)).collect(),
            ),
            CaseArg::Scalar(scalar) => ArgValue::Scalar(scalar),
            CaseArg::Ints(items) => ArgValue::Ints(items),
            CaseArg::Floats(items) => ArgValue::Floats(items),
            CaseArg::Bools(items) => ArgValue::Bools(items),
            CaseArg::Str(text) => ArgValue::Str(text),
            CaseArg::DType(dtype) => ArgValue::DType(dtype),
        };
        (name.clone(), value)
    });
    Args::new(OpName::new(&case.op), items.collect())
}

/// `Ok` when `got` is what the case expects, else a text that names the first difference.
pub fn check(got: &[HostTensor], case: &Case) -> Result<(), String> {
    if got.len() != case.outputs.len() {
        return Err(format!("got {} outputs, want {}", got.len(), case.outputs.len()));
    }
    for (index, (got, want)) in got.iter().zip(&case.outputs).enumerate() {
        check_output(got, want, case.rtol, case.atol).map_err(|text| format!("output {index}: {text}"))?;
    }
    Ok(())
}

fn check_output(got: &HostTensor, want: &CaseOutput, rtol: f64, atol: f64) -> Result<(), String> {
    match want {
        CaseOutput::Unchecked => Ok(()),
        CaseOutput::Full(want) => super::compare::tensors(got, want, rtol, atol),
        CaseOutput::Sampled { dtype, sizes, samples, weighted_sum } => {
            if got.dtype() != *dtype || got.sizes() != sizes {
                return Err(format!("got {}{:?}, want {dtype}{sizes:?}", got.dtype(), got.sizes()));
            }
            let values = got.to_f64s();
            for &(index, want) in samples {
                if !super::compare::close(values[index], want, rtol, atol) {
                    return Err(format!("element {index}: got {}, want {want}", values[index]));
                }
            }
            let sum: f64 =
                values.iter().enumerate().map(|(index, value)| value * (index % 1021 + 1) as f64).sum();
            match weighted_sum {
                Some(want) if sum != *want => Err(format!("weighted sum: got {sum}, want {want}")),
                _ => Ok(()),
            }
        }
    }
}
