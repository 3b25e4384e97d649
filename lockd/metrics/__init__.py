"""What the agent counts, and how Prometheus reads it.

A metric is declared once, where it is counted or read:

    families                       how one is declared, and passed on to prometheus_client
    counts                         what the event loop changes in place: tallies and histograms
    configured                     facts of the configuration
    classes                        classes, as metrics tell them apart
    reload                         the outcome of the last reload
    leases, masters, agent, canary counters of what happens
    fleet_view, occupancy          what is looked at during a scrape
    collector                      gathers them, in the order in which they are exposed
"""
