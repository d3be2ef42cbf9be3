"""`ciranda bench`: latency and bandwidth of collectives by size, beside other systems measured in the same run.

Parts: plan (what to measure, and the arithmetic), stages (where a call's time goes), systems (what is measured), ranks
(what each rank does), table, plot and cli.
"""
