"""Domain-free training: a loss, batches and stages in; a trained model, a run folder and exact resume out.

`fit` trains, `TrainState` is all that changes, `Stage` and `Optimiser` say how, `Run` is the folder of a run.
`save_model` and `load_model` are for released weights; `make_mesh`, `replicate`, `shard_batch` spread a batch
over devices. Nothing here knows what a flux, a crystal or a sinogram is.
"""
