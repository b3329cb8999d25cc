"""The hopper family: implicit GEMM by wgmma and the copy engine of sm_90a.

Each module uses only those above it:

==============  ==========================================================================================
``ways``        how the input may be read (``x``): as it is, copied first, gathered, transposed ...
``sum``         what is multiplied, the steps of the sum and its shares
``planes``      how rows of pixels are split when x in nchw is read as it is
``raster``      positions of pixels; tiles of them, patches of the input under them
``image``       the tensor map of the input; when threads copy it instead (``pieces``)
``finish``      which threads finish sums and store them
``layout``      the layout of shared memory
``tile``        how many tiles, threads and registers; whether blocks are persistent
``rules``       which configs are legal
``work``        counts for the model, with their fitted constants
``halves``      launches before the main one, which split each number into two of f16
``fallback``    the launch after it, which recomputes outputs for which that split lost too much
``blueprint``   launches, buffers and defines of a config
``spec``        the family: which layers it takes, its tunables
==============  ==========================================================================================

The kernel is ``hopper.cu``; its headers are in the order of a block's work: ``hopper_tile.h`` (parameters,
patches, products), ``hopper_send.h`` (barriers, copies), ``hopper_multiply.h`` (the main loop), then
``hopper_own.h`` or ``hopper_store.h``, as ``finish`` says. ``hopper_turn.h``, ``hopper_lead.h`` and
``hopper_slide.h`` each serve one way of reading.
"""
