"""What laws of loss curves say about schedules (Wang 2025).

Imports `_decisions`, `_posteriors` and the rooms below them; neither `planning` nor
`anchors`.
"""
