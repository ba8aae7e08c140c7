//! From a launch that fits the device to the dispatch of one kernel: loads, strides, spec constants.

use super::{ALONG_COLUMNS, ALONG_K, Columns, ELEMENTS, Launch, vectors_along};
use crate::{
    base::{Error, Result},
    ops::{
        Element, Lowering, Tensor,
        elementwise::pad,
        epilogue::known,
        ways::{MAX_LANES, ProductWay, ROW_SPLIT},
    },
    shader::{Chosen, Dispatch, OperandAccess, Region, kernels},
};

/// Parameters of a launch for one of the kernels, which share them.
macro_rules! params {
    ($launch:expr, $Params:ident) => {{
        let launch = $launch;
        $Params {
            m: launch.rows() as u32,
            n: launch.columns() as u32,
            k: launch.depth() as u32,
            batch_1: launch.y.sizes[1] as u32,
            alpha: launch.alpha,
            beta: launch.beta,
            act_a: launch.activation.a,
            act_b: launch.activation.b,
            a_strides: pad(&launch.a.strides, 0)?,
            b_strides: launch.b_strides()?,
            bias_strides: launch.bias_strides()?,
            y_strides: pad(&launch.y.strides[..3], 0)?,
        }
    }};
}

impl Launch {
    /// Whether rows of a can be loaded as vectors along k.
    pub(super) fn a_vec4(&self) -> bool {
        self.depth().is_multiple_of(4) && vectors_along(&self.a, 3)
    }

    /// How b is loaded: see `b_loads` in the kernels.
    pub(super) fn b_loads(&self) -> u32 {
        match &self.b {
            Columns::Panels(_) => ALONG_COLUMNS,
            Columns::Live(b) if self.columns().is_multiple_of(4) && vectors_along(b, 3) => ALONG_COLUMNS,
            Columns::Live(b) if self.depth().is_multiple_of(4) && vectors_along(b, 2) => ALONG_K,
            Columns::Live(_) => ELEMENTS,
        }
    }

    /// Strides of b as the kernels take them: of the batch dims, of k, and from one column (or panel) to the next.
    fn b_strides(&self) -> Result<[u32; 4]> {
        match &self.b {
            Columns::Panels(b) => pad(&[0, 0, 4, b.strides[0]], 0),
            Columns::Live(b) => {
                let step = if self.b_loads() == 1 { 4 } else { b.strides[3] };
                pad(&[b.strides[0], b.strides[1], b.strides[2], step], 0)
            }
        }
    }

    fn bias_strides(&self) -> Result<[u32; 4]> {
        self.bias.as_ref().map_or(Ok([0; 4]), |bias| pad(&bias.strides, 0))
    }

    /// Regions of a, b, bias and y. Those that are not read have no bytes, and others are bound in their place.
    fn regions(&self) -> [Region; 4] {
        let b = match &self.b {
            Columns::Live(b) | Columns::Panels(b) => b.region(),
        };
        let bias = self.bias.as_ref().map_or(b, Tensor::region);
        let [a, b] = [self.a.region(), b].map(|region| if region.len_bytes == 0 { bias } else { region });
        [a, b, bias, self.y.region()]
    }

    fn check_elements(&self) -> Result<()> {
        let b = match &self.b {
            Columns::Live(b) | Columns::Panels(b) => b.element,
        };
        if self.a.element != b || self.bias.as_ref().is_some_and(|bias| bias.element != b) {
            return Err(Error::internal("the operands of a product are stored in different ways"));
        }
        Ok(())
    }

    /// Kernels read y only where they add to it.
    fn with_access(&self, mut dispatch: Dispatch) -> Dispatch {
        if let Some(y) = dispatch.operands.last_mut().filter(|_| !self.adds_y) {
            y.access = OperandAccess::Write;
        }
        dispatch
    }

    fn round_mode(&self, cx: &Lowering<'_>) -> u32 {
        if self.keeps_f32 { 0 } else { cx.round_mode(self.y.dtype, self.y.element) }
    }

    /// Work groups of the kernels whose invocations take a tile each.
    fn tile_groups(&self, chosen: &Chosen<ProductWay>) -> [u32; 3] {
        let (rows, columns) = (chosen.tile_rows(), chosen.tile_columns());
        [self.rows().div_ceil(rows), self.columns().div_ceil(columns), self.batches()]
            .map(|groups| groups as u32)
    }

    pub(super) fn tile_dispatch(&self, cx: &Lowering<'_>, chosen: &Chosen<ProductWay>) -> Result<Dispatch> {
        use kernels::matmul::{Axes, Operands, Out, Params, Spec, TileM, dispatch};
        self.check_elements()?;
        let axes = Axes {
            dtype: float_axis!(matmul, self.a.element)?,
            out: if self.y.element == Element::F16 { Out::F16 } else { Out::F32 },
            tile_m: match chosen.value.rows() {
                4 => TileM::TileM4,
                8 => TileM::TileM8,
                _ => TileM::TileM16,
            },
        };
        let [local_x, local_y] = chosen.local;
        let spec = Spec {
            round_mode: self.round_mode(cx),
            local_x,
            local_y,
            a_vec4: u32::from(self.a_vec4()),
            b_loads: self.b_loads(),
            has_bias: u32::from(self.bias.is_some()),
            adds_y: u32::from(self.adds_y),
            activation: known(self.activation.in_matmul())?,
        };
        let [a, b, bias, y] = self.regions();
        let params = params!(self, Params);
        let groups = self.tile_groups(chosen);
        let dispatch = dispatch(axes, spec, Operands { a, b, bias, y }, params, groups, cx.label());
        Ok(self.with_access(dispatch))
    }

    /// What reads a and b as texels of 4 elements, which the launch has.
    pub(super) fn texel_dispatch(&self, cx: &Lowering<'_>, chosen: &Chosen<ProductWay>) -> Result<Dispatch> {
        use kernels::matmul_texel::{Axes, Operands, Out, Params, Spec, dispatch};
        self.check_elements()?;
        let axes = Axes {
            dtype: float_axis!(matmul_texel, self.a.element)?,
            out: if self.y.element == Element::F16 { Out::F16 } else { Out::F32 },
        };
        let [local_x, local_y] = chosen.local;
        let spec = Spec {
            round_mode: self.round_mode(cx),
            local_x,
            local_y,
            has_bias: u32::from(self.bias.is_some()),
            adds_y: u32::from(self.adds_y),
            activation: known(self.activation.in_matmul_texel())?,
        };
        let [a, b, bias, y] = self.regions();
        let params = params!(self, Params);
        let groups = self.tile_groups(chosen);
        let dispatch = dispatch(axes, spec, Operands { a, b, bias, y }, params, groups, cx.label());
        Ok(self.with_access(dispatch))
    }

    pub(super) fn lanes_dispatch(&self, cx: &Lowering<'_>, chosen: &Chosen<ProductWay>) -> Result<Dispatch> {
        use kernels::matmul_lanes::{Axes, Operands, Out, Params, Spec, TileM, dispatch};
        self.check_elements()?;
        let axes = Axes {
            dtype: float_axis!(matmul_lanes, self.a.element)?,
            out: if self.y.element == Element::F16 { Out::F16 } else { Out::F32 },
            tile_m: match chosen.value.rows() {
                1 => TileM::TileM1,
                4 => TileM::TileM4,
                8 => TileM::TileM8,
                _ => TileM::TileM16,
            },
        };
        let [local_x, _] = chosen.local;
        let spec = Spec {
            round_mode: self.round_mode(cx),
            local_x,
            lanes: cx.profile().subgroup_size.clamp(4, MAX_LANES),
            a_vec4: u32::from(self.a_vec4()),
            b_loads: self.b_loads(),
            has_bias: u32::from(self.bias.is_some()),
            adds_y: u32::from(self.adds_y),
            activation: known(self.activation.in_matmul_lanes())?,
        };
        let [a, b, bias, y] = self.regions();
        let params = params!(self, Params);
        let groups = self.tile_groups(chosen);
        let dispatch = dispatch(axes, spec, Operands { a, b, bias, y }, params, groups, cx.label());
        Ok(self.with_access(dispatch))
    }

    pub(super) fn split_dispatch(&self, cx: &Lowering<'_>, chosen: &Chosen<ProductWay>) -> Result<Dispatch> {
        use kernels::matmul_split::{Axes, Operands, Out, Params, Spec, TileM, dispatch};
        self.check_elements()?;
        let axes = Axes {
            dtype: float_axis!(matmul_split, self.a.element)?,
            out: if self.y.element == Element::F16 { Out::F16 } else { Out::F32 },
            tile_m: match chosen.value.rows() {
                2 => TileM::TileM2,
                4 => TileM::TileM4,
                _ => TileM::TileM8,
            },
        };
        let spec = Spec {
            round_mode: self.round_mode(cx),
            local_x: chosen.local[0],
            a_vec4: u32::from(self.a_vec4()),
            b_loads: self.b_loads(),
            has_bias: u32::from(self.bias.is_some()),
            adds_y: u32::from(self.adds_y),
            activation: known(self.activation.in_matmul_split())?,
        };
        let [a, b, bias, y] = self.regions();
        let params = params!(self, Params);
        let groups = self.tile_groups(chosen);
        let dispatch = dispatch(axes, spec, Operands { a, b, bias, y }, params, groups, cx.label());
        Ok(self.with_access(dispatch))
    }

    pub(super) fn row_dispatch(&self, cx: &Lowering<'_>, chosen: &Chosen<ProductWay>) -> Result<Dispatch> {
        use kernels::matmul_row::{Axes, Operands, Out, Params, Spec, dispatch};
        self.check_elements()?;
        let axes = Axes {
            dtype: float_axis!(matmul_row, self.a.element)?,
            out: if self.y.element == Element::F16 { Out::F16 } else { Out::F32 },
        };
        let spec = Spec {
            round_mode: self.round_mode(cx),
            local_x: chosen.local[0],
            a_vec4: u32::from(self.a_vec4()),
            b_loads: self.b_loads(),
            has_bias: u32::from(self.bias.is_some()),
            adds_y: u32::from(self.adds_y),
            activation: known(self.activation.in_matmul_row())?,
        };
        let [a, b, bias, y] = self.regions();
        let params = params!(self, Params);
        let [x, y_groups, _] = cx.groups_1d(self.columns().div_ceil(4), spec.local_x / ROW_SPLIT)?;
        let groups = [x, y_groups, self.batches() as u32];
        let dispatch = dispatch(axes, spec, Operands { a, b, bias, y }, params, groups, cx.label());
        Ok(self.with_access(dispatch))
    }
}
