from fl_sketch.privacy.noninterference.proof import check
